"""Files that are no record files, or not the ones that their names say."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import anyrecord
import pytest
from anyrecord import FormatError, TruncatedError
from conformance.formats import FORMATS, Case, Format
from conformance.storages import write

from hostile.small import RECORDS, is_reported, read_all, small_file

TEXT = b"The quick brown fox jumps over the lazy dog.\n"

KINDS: dict[str, Callable[[int], bytes]] = {
    "zeros": bytes,
    "ones": lambda size: b"\xff" * size,
    "text": lambda size: (TEXT * (size // len(TEXT) + 1))[:size],
    "random": lambda size: random.Random(size).randbytes(size),
    "small numbers": lambda size: (b"\1\0\0\0\0\0\0\0" * (size // 8 + 1))[:size],
}
SIZES = [*range(1, 70), 100, 255, 256, 1000, 4096, 65_536, 1_000_003]

FORMAT_OF_SUFFIX: dict[str, Format | None] = {"": None, ".bin": None, **{f.suffix: f for f in FORMATS}}


def is_valid_oddity(data: bytes) -> bool:
    """Bytes that some format takes for a file of its own, whatever the name says."""
    return any(data in format.valid_oddities for format in FORMATS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", FORMAT_OF_SUFFIX)
def test_garbage_of_any_size_under_any_name_is_a_format_error(tmp_path: Path, suffix: str, kind: str) -> None:
    path = tmp_path / f"garbage{suffix}"
    for size in SIZES:
        data = KINDS[kind](size)
        if is_valid_oddity(data):
            continue
        path.write_bytes(data)
        with pytest.raises(FormatError) as caught, anyrecord.open(path) as records:
            list(records)
        assert caught.value.path == str(path), f"{size} bytes"
        assert str(path) in str(caught.value), f"{size} bytes"
        assert is_reported(path), f"{size} bytes"


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_in_memory_is_a_format_error_of_the_format_asked_for(case: Case, kind: str) -> None:
    for size in SIZES:
        data = KINDS[kind](size)
        if data not in case.format.valid_oddities:
            assert isinstance(read_all(data, case.format.name).error, FormatError), f"{size} bytes"
            assert not anyrecord.verify(data, format=case.format.name).ok, f"{size} bytes"


@pytest.mark.parametrize("suffix", FORMAT_OF_SUFFIX)
def test_an_empty_file_is_cut_unless_its_suffix_allows_it(tmp_path: Path, suffix: str) -> None:
    path, format = tmp_path / f"empty{suffix}", FORMAT_OF_SUFFIX[suffix]
    path.touch()
    if format is not None and format.empty_file_is_valid:
        with anyrecord.open(path) as records:
            assert len(records) == 0
        return
    with pytest.raises(TruncatedError) as caught:
        anyrecord.open(path)
    assert caught.value.path == str(path)
    assert "0 bytes" in (caught.value.found or "")


def test_what_no_format_recognises_names_the_formats(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(TEXT)
    with pytest.raises(FormatError, match="no format recognises") as caught:
        anyrecord.open(path)
    assert all(format.name in (caught.value.expected or "") for format in FORMATS)


@pytest.mark.parametrize("suffix", [".array_record", ".ffr", ".recordio", ".tfrecord", ".txt", ""])
def test_the_bytes_decide_about_the_format_and_not_the_name(case: Case, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"renamed{suffix}"
    path.write_bytes(small_file(case))
    with anyrecord.open(path) as records:
        assert records.format == case.format.name
        assert tuple(records) == RECORDS
    report = anyrecord.verify(path)
    assert report.ok
    assert report.format == case.format.name


def test_a_format_that_does_not_exist_is_refused_with_those_that_do(case: Case, tmp_path: Path) -> None:
    path = tmp_path / f"a{case.suffix}"
    write(path, RECORDS, case)
    with pytest.raises(ValueError, match="no such format") as caught:
        anyrecord.open(path, format="no such format")
    assert not isinstance(caught.value, FormatError)
    assert case.format.name in str(caught.value)


def test_one_bad_file_among_good_ones_is_the_one_that_is_named(case: Case, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number:02}{case.suffix}" for number in range(12)]
    for path in paths:
        write(path, RECORDS, case)
    paths[7].write_bytes(b"\xff" * 100)
    for source in (paths, tmp_path, str(tmp_path / f"*{case.suffix}")):
        with pytest.raises(FormatError) as caught:
            anyrecord.open(source)
        assert caught.value.path == str(paths[7])
    report = anyrecord.verify(tmp_path)
    assert not report.ok
    assert {problem.path for problem in report.problems} == {str(paths[7])}
    assert report.records == 11 * len(RECORDS)
