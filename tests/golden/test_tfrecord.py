"""Files that TensorFlow wrote, plain and compressed, and damaged copies.

The damaged ones are listed here by name with the error that they must raise, so that a new file cannot go untested.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ChecksumError, FormatError, RecordError, TruncatedError

from golden.digests import digest

FOLDER = Path(__file__).parent / "tfrecord"
ENTRIES: dict[str, dict[str, Any]] = {
    entry["file"]: entry for entry in json.loads((FOLDER / "manifest.json").read_text())["files"]
}
VALID = [file for file, entry in ENTRIES.items() if entry["kind"] == "valid"]

UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda data: data,
    "gzip": lambda data: gzip.decompress(data),
    "zlib": lambda data: zlib.decompress(data),
}

DAMAGED: dict[str, tuple[str, type[RecordError]]] = {
    "bad_length.tfrecord": ("open", ChecksumError),
    "bad_length_crc.tfrecord": ("open", ChecksumError),
    "huge_length.tfrecord": ("open", ChecksumError),
    "bad_data.tfrecord": ("read", ChecksumError),
    "bad_data_crc.tfrecord": ("read", ChecksumError),
    "cut_in_data.tfrecord": ("open", TruncatedError),
    "cut_in_header.tfrecord": ("open", TruncatedError),  # where TensorFlow ends without a word
    "cut_last_byte.tfrecord": ("open", TruncatedError),
    "trailing_zeros.tfrecord": ("open", ChecksumError),
}
"""When each is refused, and how."""


def test_every_file_of_the_manifest_is_known_here() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*ENTRIES, "manifest.json"}
    assert {*VALID, *DAMAGED} == set(ENTRIES)


@pytest.mark.parametrize("file", VALID)
def test_a_valid_file_yields_exactly_its_records(file: str) -> None:
    entry = ENTRIES[file]
    records = anyrecord.open(FOLDER / file)
    assert (records.format, len(records)) == ("tfrecord", entry["n"])
    assert digest(records) == digest(records[[*range(len(records))]]) == entry["records_sha256"]
    assert digest(records[index] for index in range(len(records))) == entry["records_sha256"]
    sizes = records.sizes()
    assert sizes is not None
    assert list(sizes) == [len(record) for record in records]


@pytest.mark.parametrize("file", VALID)
def test_verify_and_info_agree_with_the_manifest(file: str) -> None:
    entry = ENTRIES[file]
    report, about = anyrecord.verify(FOLDER / file), anyrecord.info(FOLDER / file)
    assert report.ok, report
    assert (report.records, report.file_bytes) == (about.records, about.file_bytes) == (entry["n"], entry["size"])
    assert about.codec == entry["compression"].lower()
    assert report.record_bytes == about.record_bytes


@pytest.mark.parametrize("file", VALID)
def test_writing_the_same_records_gives_the_same_bytes_before_compression(file: str, tmp_path: Path) -> None:
    entry, path = ENTRIES[file], tmp_path / file
    with anyrecord.create(path, codec=entry["compression"].lower()) as out:
        out.write_many(anyrecord.open(FOLDER / file))
    unpack = UNPACK[entry["compression"].lower()]
    assert unpack(path.read_bytes()) == unpack((FOLDER / file).read_bytes())


@pytest.mark.parametrize("file", DAMAGED)
def test_damage_is_a_named_error_and_costs_no_other_record(file: str) -> None:
    when, kind = DAMAGED[file]
    whole = list(anyrecord.open(FOLDER / ENTRIES[file]["base"]))
    assert digest(whole) == ENTRIES[file]["base_records_sha256"]
    if when == "open":
        with pytest.raises(kind) as caught:
            anyrecord.open(FOLDER / file)
        assert caught.value.path == str(FOLDER / file)
        assert caught.value.offset is not None
        return
    records = anyrecord.open(FOLDER / file)
    assert len(records) == len(whole)
    errors: list[RecordError] = []
    for index, record in enumerate(whole):
        try:
            assert records[index] == record
        except kind as error:
            errors.append(error)
    assert [type(error) for error in errors] == [kind]
    assert errors[0].record is not None


@pytest.mark.parametrize("file", DAMAGED)
def test_verify_reports_every_damage(file: str) -> None:
    report = anyrecord.verify(FOLDER / file)
    assert not report.ok
    assert report.problems[0].path == str(FOLDER / file)


def test_a_cut_between_records_is_seen_by_the_expected_number_of_records(tmp_path: Path) -> None:
    whole = list(anyrecord.open(FOLDER / "mixed.tfrecord"))
    path = tmp_path / "cut.tfrecord"
    end = len((FOLDER / "mixed.tfrecord").read_bytes()) - len(whole[-1]) - 16
    path.write_bytes((FOLDER / "mixed.tfrecord").read_bytes()[:end])
    assert list(anyrecord.open(path)) == whole[:-1], "nobody can see it: the format stores no end"
    assert anyrecord.verify(path).ok
    with pytest.raises(FormatError, match="wrong number of records"):
        anyrecord.open(path, expected_records=len(whole))


@pytest.mark.parametrize(("suffix", "codec"), [("", "none"), (".gz", "gzip"), (".zlib", "zlib")])
def test_the_suffix_chooses_the_compression_unless_codec_does(tmp_path: Path, suffix: str, codec: str) -> None:
    for options, expected in (({}, codec), ({"codec": "none"}, "none")):
        path = tmp_path / f"{expected}-{len(options)}.tfrecord{suffix}"
        with anyrecord.create(path, **options) as out:  # type: ignore[arg-type]
            out.write(b"x")
        assert anyrecord.info(path).codec == expected
