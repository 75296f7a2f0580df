"""Which format a damaged file is of: `source_format=`, else its bytes, else its name, else what a search finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyrecord
import pytest

from salvage.saving import file_bytes, saved, saved_and_report

RECORDS = [b"%04d" % number * 20 for number in range(50)]
OPTIONS: dict[str, dict[str, Any]] = {
    "ffrecord": {},
    "tfrecord": {},
    "recordio": {"chunk_bytes": 200},
    "array_record": {"group_size": 2},
}
SUFFIXES = {"ffrecord": ".ffr", "tfrecord": ".tfrecord", "recordio": ".recordio", "array_record": ".array_record"}


def without_beginning(format: str) -> bytes:
    """A file whose first bytes are zeros: its signature and its first chunk, or the first part of its table."""
    data = file_bytes(format, RECORDS, **OPTIONS[format])
    return bytes(12 if format == "ffrecord" else 100) + data[12 if format == "ffrecord" else 100 :]


@pytest.mark.parametrize("format", OPTIONS)
@pytest.mark.parametrize("name", ["train{}", ".train{}.1a2b3c4d.tmp"])
def test_the_suffix_says_what_a_damaged_beginning_was(format: str, name: str) -> None:
    path = name.format(SUFFIXES[format])
    Path(path).write_bytes(without_beginning(format))
    found, report = saved_and_report(path)
    assert report.format == format
    assert len(found) > 40
    assert found == RECORDS[-len(found) :]


@pytest.mark.parametrize("format", ["tfrecord", "recordio", "array_record"])
@pytest.mark.parametrize(
    "byte", [b"\xff", b"\x00"], ids=["ones", "zeros"]
)  # zeros could be an unfinished FFRecord file
def test_a_search_says_what_a_file_without_a_name_was(format: str, byte: bytes) -> None:
    data = byte * 100 + without_beginning(format)[100:]
    found, report = saved_and_report(data)
    assert report.format == format
    assert found == RECORDS[-len(found) :]
    assert len(found) > 40


def test_a_damaged_table_without_a_name_is_recognised_by_its_proof() -> None:
    data = bytearray(file_bytes("ffrecord", RECORDS))
    data[9] = 0x77  # far too many samples
    assert saved(data) == RECORDS


def test_riegeli_is_read_if_asked_for() -> None:
    data = file_bytes("array_record", RECORDS, group_size=1)
    found, report = saved_and_report(data, "riegeli")
    assert report.format == "riegeli"
    assert found[: len(RECORDS)] == RECORDS, "then come the footer and the postscript"


@pytest.mark.parametrize("data", [b"\xff" * 5000, b"some text, and not a record file\n" * 100, b""])
def test_an_unrecognisable_file_is_an_error_that_says_what_to_pass(data: bytes) -> None:
    Path("unknown.bin").write_bytes(data)
    for source in (data, "unknown.bin"):
        with pytest.raises(anyrecord.RecordError, match="pass source_format="):
            anyrecord.salvage(source)


def test_a_file_that_could_be_of_two_formats_is_an_error_that_says_what_to_pass() -> None:
    two = b"\xff" * 20 + file_bytes("tfrecord", RECORDS) + b"\xff" * 20 + file_bytes("recordio", RECORDS)
    with pytest.raises(anyrecord.FormatError, match=r"recordio, tfrecord; pass source_format="):
        anyrecord.salvage(two)
    assert saved(two, "tfrecord") == RECORDS
    assert saved(two, "recordio") == RECORDS


@pytest.mark.parametrize("format", OPTIONS)
@pytest.mark.parametrize("size", range(0, 30, 3))
def test_a_few_bytes_are_no_records_of_any_format(format: str, size: int) -> None:
    data = file_bytes(format, RECORDS, **OPTIONS[format])[:size]
    found, report = saved_and_report(data, format)
    assert found == []
    assert report.lost_bytes == size
