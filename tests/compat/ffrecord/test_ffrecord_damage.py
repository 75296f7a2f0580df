"""Damaged files: where the original gives data, so do we; where it fails, crashes or gives wrong data, we raise."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord.compat.ffrecord import FileReader

FOLDER = Path(__file__).parents[2] / "golden" / "ffrecord"
MANIFEST: list[dict[str, Any]] = json.loads((FOLDER / "manifest.json").read_text())["files"]
FILES = [about for about in MANIFEST if "real_library" in about]


def runs(about: dict[str, Any], check: bool) -> list[tuple[int, int, str]]:
    found = about["real_library"][f"check_data={check}"]
    return found.get("read_one") or []


def first_line(error: BaseException) -> str:
    return str(error).split("\n")[0]


def opened(path: Path, check: bool) -> FileReader | Exception:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # old files say that they are old
            return FileReader(path, check)
    except RuntimeError as error:
        return error


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("about", FILES, ids=lambda about: str(about["file"]))
def test_samples_are_the_originals_or_an_error(about: dict[str, Any], check: bool) -> None:
    path = FOLDER / about["file"]
    reader = opened(path, check)
    if isinstance(reader, Exception):
        assert isinstance(reader, anyrecord.FormatError)
        assert reader.path == str(path)
        assert about["kind"] == "corrupt"
        return
    good = {row for first, last, outcome in runs(about, check) if outcome == "ok" for row in range(first, last + 1)}
    for index in range(reader.n):
        if index in good:
            reader.read_one(index)
        elif check:
            with pytest.raises(RuntimeError) as caught:
                reader.read_one(index)
            assert first_line(caught.value) == f"'checksum2 == checksum' failed. Sample {index}: checksum mismached!"


@pytest.mark.parametrize("about", [a for a in FILES if a["kind"] == "valid"], ids=lambda about: str(about["file"]))
def test_valid_files_read_as_one_batch(about: dict[str, Any]) -> None:
    reader = FileReader(FOLDER / about["file"])
    assert reader.n == about["n"]
    batch = reader.read(range(reader.n))
    assert [bytes(sample) for sample in batch] == list(anyrecord.open(FOLDER / about["file"]))


METADATA = ["bad_header_crc", "bad_sample_crc_entry", "bad_offset_entry", "bad_n_plus1", "bad_n_minus1"]


@pytest.mark.parametrize("name", METADATA)
def test_a_damaged_table_has_the_originals_line(name: str) -> None:
    path = FOLDER / f"{name}.ffr"
    line = f"'checksum == checksum_meta' failed. {path}: checksum of metadata mismached!"
    with pytest.raises(RuntimeError) as caught:
        FileReader(path)
    assert first_line(caught.value) == line
    assert isinstance(caught.value, anyrecord.ChecksumError)


def test_validate_checks_the_tables() -> None:
    FileReader(FOLDER / "basic.ffr").validate()
    reader = FileReader(FOLDER / "bad_header_crc.ffr", check_data=False)
    with pytest.raises(RuntimeError) as caught:
        reader.validate()
    line = f"'checksum == checksum_meta' failed. {reader.fnames[0]}: checksum of metadata mismached!"
    assert first_line(caught.value) == line
    with pytest.warns(UserWarning, match="old FFRecord file"):
        old = FileReader(FOLDER / "old_v0.ffr")
    with pytest.warns(UserWarning, match="old FFRecord file"):
        old.validate()


@pytest.mark.parametrize("name", ["bad_n_huge", "bad_n_max", "bad_n_negative", "trunc_0", "trunc_3", "trunc_8"])
@pytest.mark.parametrize("check", [True, False])
def test_impossible_counts_are_one_kind_of_error(name: str, check: bool) -> None:
    with pytest.raises(RuntimeError) as caught:
        FileReader(FOLDER / f"{name}.ffr", check)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("name", ["trunc_mid", "trunc_header_only", "unfinished", "evil_offset_past_eof"])
@pytest.mark.parametrize("check", [True, False])
def test_cut_files_are_refused_at_open(name: str, check: bool) -> None:
    with pytest.raises(RuntimeError):
        FileReader(FOLDER / f"{name}.ffr", check)


@pytest.mark.parametrize("name", ["trunc_last_byte", "trailing_garbage"])
def test_an_end_that_does_not_fit_is_refused_at_open(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"^'checksum2 == checksum' failed. Sample 23: checksum mismached!"):
        FileReader(FOLDER / f"{name}.ffr")
    assert FileReader(FOLDER / f"{name}.ffr", check_data=False).n == 24


@pytest.mark.parametrize("indices", [[0], [0, 1], [0, 1, 2]])
def test_an_empty_sample_with_a_wrong_checksum_is_found_in_batches_of_any_size(indices: list[int]) -> None:
    reader = FileReader(FOLDER / "evil_empty_crc.ffr")
    with pytest.raises(RuntimeError, match="Sample 0: checksum mismached!"):
        reader.read(indices)


def test_failures_leak_neither_descriptors_nor_memory(tmp_path: Path) -> None:
    import resource

    for _ in range(50):
        with pytest.raises(RuntimeError):
            FileReader(FOLDER / "bad_header_crc.ffr")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        with pytest.raises(RuntimeError):
            FileReader(FOLDER / "bad_header_crc.ffr")
    assert len(os.listdir("/proc/self/fd")) == before

    with anyrecord.create(tmp_path / "big.ffr", durable=False) as out:
        out.write_many([bytes(1 << 20), b"end"])
    data = bytearray((tmp_path / "big.ffr").read_bytes())
    data[1000] ^= 1
    (tmp_path / "big.ffr").write_bytes(data)
    reader = FileReader(tmp_path / "big.ffr")
    for count in (20, 200):
        for _ in range(count):
            with pytest.raises(RuntimeError):
                reader.read_one(0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if count == 20:
            before = peak
    assert peak - before < 50_000  # in KiB; leaking would be 200 MiB


def test_a_file_cut_under_the_reader_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.ffr"
    with anyrecord.create(path) as out:
        out.write_many([b"x" * 100_000] * 3)
    reader = FileReader(path)
    os.truncate(path, 150_000)
    assert reader.read_one(0).nbytes == 100_000
    for read in (lambda: reader.read_one(2), lambda: reader.read([2, 1, 0])):
        with pytest.raises(RuntimeError):
            read()
