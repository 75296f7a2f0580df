"""Files that the original FFRecord library wrote, and damaged copies of them.

Every file of the manifest is listed here by its kind, or by name with the error that it must raise, so that a new file
cannot go untested.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyrecord
import pytest
from anyrecord import ChecksumError, FormatError, RecordError, TruncatedError

FOLDER = Path(__file__).parent / "ffrecord"
ENTRIES: dict[str, dict[str, Any]] = {
    entry["file"]: entry for entry in json.loads((FOLDER / "manifest.json").read_text())["files"]
}
READABLE = {"valid", "valid-odd", "old", "directory", "packed", "packed-odd", "packed-hostile"}
CURRENT = {"valid", "packed", "packed-odd", "packed-hostile"}
"""Kinds that today's writer makes, byte for byte."""


def of_kind(*kinds: str) -> list[str]:
    return [file for file, entry in ENTRIES.items() if entry["kind"] in kinds]


@dataclass(frozen=True)
class Damage:
    """How a corrupt file must be refused."""

    when: Literal["open", "read"]
    error: type[RecordError]
    offset: int | None
    """None: nothing was there to point at."""
    records: tuple[int, ...] = ()
    """The samples that are damaged; at open, the one that the error names."""
    unchecked: Literal["refused", "same", "other"] = "refused"
    """With checksums=False: refused all the same, the original's samples, or other bytes in the damaged ones."""


def offset_entry(sample: int, n: int = 24) -> int:
    """Where the offset of a sample is stored."""
    return 12 + 4 * n + 8 * sample


def sample_begin(sample: int, file: str = "basic.ffr") -> int:
    """Where a sample begins, by the stored offset."""
    data = (FOLDER / file).read_bytes()
    (n,) = struct.unpack_from("<q", data, 4)
    (offset,) = struct.unpack_from("<q", data, 12 + 4 * n + 8 * sample)
    return int(offset)


CORRUPT = {
    # A sample: only its own read fails.
    "bad_sample_bit.ffr": Damage("read", ChecksumError, sample_begin(16), (16,), "other"),
    "evil_sample_crc.ffr": Damage("read", ChecksumError, sample_begin(1), (1,), "same"),
    "evil_empty_crc.ffr": Damage("read", ChecksumError, sample_begin(0, "evil_empty_crc.ffr"), (0,), "same"),
    "old_bad_offset.ffr": Damage("read", ChecksumError, sample_begin(4), (4, 5), "other"),
    # The last sample ends where the file does, so it is looked at when the file is opened.
    "trunc_last_byte.ffr": Damage("open", ChecksumError, sample_begin(23), (23,), "other"),
    "trailing_garbage.ffr": Damage("open", ChecksumError, sample_begin(23), (23,), "other"),
    # The table, protected by its checksum.
    "bad_header_crc.ffr": Damage("open", ChecksumError, 0, unchecked="same"),
    "bad_sample_crc_entry.ffr": Damage("open", ChecksumError, 0, unchecked="same"),
    "bad_offset_entry.ffr": Damage("open", ChecksumError, 0, (4, 5), unchecked="other"),
    "bad_n_plus1.ffr": Damage("open", ChecksumError, 0),
    "bad_n_minus1.ffr": Damage("open", ChecksumError, 0),
    # Counts that no file of this size, or no file at all, can have.
    "bad_n_huge.ffr": Damage("open", TruncatedError, 4),
    "bad_n_max.ffr": Damage("open", FormatError, 4),
    "bad_n_negative.ffr": Damage("open", FormatError, 4),
    # Cut files.
    "trunc_0.ffr": Damage("open", TruncatedError, 0),
    "trunc_3.ffr": Damage("open", TruncatedError, 3),
    "trunc_8.ffr": Damage("open", TruncatedError, 8),
    "trunc_12.ffr": Damage("open", TruncatedError, 4),
    "trunc_in_checksums.ffr": Damage("open", TruncatedError, 4),
    "trunc_in_offsets.ffr": Damage("open", TruncatedError, 4),
    "trunc_header_only.ffr": Damage("open", TruncatedError, offset_entry(1), (1,)),
    "trunc_mid.ffr": Damage("open", TruncatedError, offset_entry(14), (14,)),
    # A writer that never closed.
    "unfinished.ffr": Damage("open", FormatError, 12),
    # Offsets that the table's checksum vouches for and that cannot be.
    "evil_offsets_decreasing.ffr": Damage("open", FormatError, offset_entry(6), (6,)),
    "evil_offset_past_eof.ffr": Damage("open", TruncatedError, offset_entry(23), (23,)),
    "evil_offset_2_40.ffr": Damage("open", TruncatedError, offset_entry(4), (4,)),
    "evil_offset_negative.ffr": Damage("open", FormatError, offset_entry(0), (0,)),
}

UNNAMED_RECORD = {"bad_offset_entry.ffr"}
"""The error is about the table and names no sample, though some are damaged."""

BASIC = FOLDER / "basic.ffr"


def digest(records: anyrecord.Records) -> str:
    hashed = hashlib.sha256()
    for record in records:
        hashed.update(struct.pack("<Q", len(record)) + record)
    return hashed.hexdigest()


@pytest.fixture
def old_files_allowed() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*old FFRecord", category=UserWarning)
        yield


def test_every_file_of_the_manifest_is_known_here() -> None:
    assert set(of_kind("corrupt")) == CORRUPT.keys()
    assert {entry["kind"] for entry in ENTRIES.values()} == READABLE | {"corrupt"}
    on_disk = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.ffr")}
    assert on_disk == set(ENTRIES) - {"shards"}


@pytest.mark.parametrize("file", ENTRIES)
def test_the_files_are_the_ones_of_the_manifest(file: str) -> None:
    if (sha256 := ENTRIES[file].get("sha256")) is not None:
        assert hashlib.sha256((FOLDER / file).read_bytes()).hexdigest() == sha256


# Files that are right


@pytest.mark.usefixtures("old_files_allowed")
@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("file", of_kind(*READABLE))
def test_every_record_is_what_the_original_read(file: str, checksums: bool) -> None:
    with anyrecord.open(FOLDER / file, checksums=checksums) as records:
        assert len(records) == ENTRIES[file]["n"]
        assert digest(records) == ENTRIES[file]["records_sha256"]
        assert records[range(len(records))] == list(records)
        assert records.format == "ffrecord"


def test_a_folder_is_its_files_in_the_order_of_their_names() -> None:
    with anyrecord.open(FOLDER / "shards") as records:
        assert records.paths == [str(FOLDER / "shards" / part) for part in ENTRIES["shards"]["parts"]]


@pytest.mark.parametrize("file", of_kind("old"))
def test_an_old_file_is_read_with_a_warning_that_names_it(file: str) -> None:
    with pytest.warns(UserWarning, match="old FFRecord") as caught:
        anyrecord.open(FOLDER / file).close()
    assert [file in str(warning.message) for warning in caught] == [True]
    assert caught[0].filename == __file__


@pytest.mark.parametrize("file", of_kind(*READABLE - {"directory"}))
def test_a_file_that_is_right_verifies(file: str) -> None:
    report = anyrecord.verify(FOLDER / file)
    assert report.ok, str(report)
    assert report.records == ENTRIES[file]["n"]
    assert report.file_bytes == ENTRIES[file]["size"]
    if file != "gap_after_header.ffr":
        assert report.unused == ()
        assert report.meta_bytes == 12 + 12 * report.records
        assert report.meta_bytes + report.record_bytes == report.file_bytes


def test_bytes_that_no_sample_claims_are_reported_as_unused() -> None:
    path = FOLDER / "gap_after_header.ffr"
    report = anyrecord.verify(path)
    assert report.ok
    assert report.unused == ((str(path), 300, 364),)


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("file", of_kind(*CURRENT))
def test_our_writer_makes_the_very_same_bytes(file: str, announced: bool) -> None:
    expected = (FOLDER / file).read_bytes()
    memory = io.BytesIO()
    with anyrecord.open(FOLDER / file) as records:
        number = len(records) if announced else None
        with anyrecord.create("again.ffr", num_records=number) as out:
            out.write_many(records)
        with anyrecord.create(memory, format="ffrecord", num_records=number, threads=2) as out:
            out.write_many(records)
    assert Path("again.ffr").read_bytes() == expected
    assert memory.getvalue() == expected


@pytest.mark.usefixtures("old_files_allowed")
@pytest.mark.parametrize(
    ("file", "today"),
    [("old_v0.ffr", "basic.ffr"), ("old_v0_n0.ffr", "n0.ffr"), ("gap_after_header.ffr", "basic.ffr")],
)
def test_an_odd_file_written_again_is_a_plain_one_of_today(file: str, today: str) -> None:
    with anyrecord.open(FOLDER / file) as records, anyrecord.create("again.ffr") as out:
        out.write_many(records)
    assert Path("again.ffr").read_bytes() == (FOLDER / today).read_bytes()


# Files that are damaged


def check_error(file: str, damage: Damage, error: RecordError, record: int | None) -> None:
    path = str(FOLDER / file)
    assert type(error) is damage.error
    assert isinstance(error, ValueError)
    assert (error.path, error.record) == (path, record)
    assert error.expected
    assert error.found
    assert error.expected != error.found
    text = str(error)
    assert text.index(path) < text.index("expected") < text.index("found")


def named_record(file: str, damage: Damage) -> int | None:
    return None if file in UNNAMED_RECORD or not damage.records else damage.records[0]


@pytest.mark.parametrize("file", [file for file, damage in CORRUPT.items() if damage.when == "open"])
def test_damage_of_the_structure_is_an_error_at_open(file: str) -> None:
    damage = CORRUPT[file]
    for source in (FOLDER / file, str(FOLDER / file), [FOLDER / file]):
        with pytest.raises(RecordError) as caught:
            anyrecord.open(source)
        check_error(file, damage, caught.value, named_record(file, damage))
        assert caught.value.offset == damage.offset
    with pytest.raises(FormatError):
        anyrecord.info(FOLDER / file)
    with pytest.raises(FormatError):
        anyrecord.open((FOLDER / file).read_bytes())


@pytest.mark.usefixtures("old_files_allowed")
@pytest.mark.parametrize("file", [file for file, damage in CORRUPT.items() if damage.when == "read"])
def test_damage_of_a_sample_is_an_error_at_its_read_and_the_others_stay_readable(file: str) -> None:
    damage, original = CORRUPT[file], original_of(file)
    with anyrecord.open(FOLDER / file) as records:
        assert len(records) == len(original)
        good = [i for i in range(len(records)) if i not in damage.records]
        assert [records[i] for i in good] == records[good] == [original[i] for i in good]
        for i in damage.records:
            for read in (lambda i=i: records[i], lambda i=i: records[[i]], lambda i=i: records[i : i + 1][0]):
                with pytest.raises(RecordError) as caught:
                    read()
            with pytest.raises(ChecksumError):
                records[[*good, i]]
            with pytest.raises(ChecksumError):
                records.read_into(bytearray(10_000), [i])
        with pytest.raises(RecordError) as caught:
            records[damage.records[0]]
        check_error(file, damage, caught.value, damage.records[0])
        assert caught.value.offset == damage.offset


@pytest.mark.usefixtures("old_files_allowed")
@pytest.mark.parametrize("file", [file for file, damage in CORRUPT.items() if damage.when == "read"])
def test_iterating_gives_the_good_samples_before_a_damaged_one(file: str) -> None:
    first, original = CORRUPT[file].records[0], original_of(file)
    got: list[bytes] = []
    with anyrecord.open(FOLDER / file) as records, pytest.raises(ChecksumError) as caught:
        got.extend(records)
    assert got == original[:first]
    assert caught.value.record == first


@pytest.mark.parametrize("file", CORRUPT)
def test_verify_reports_every_damage(file: str) -> None:
    damage, path = CORRUPT[file], FOLDER / file
    report = anyrecord.verify(path)
    assert not report.ok
    assert not report
    assert report.problem_count == len(report.problems) >= 1
    assert report.file_bytes == ENTRIES[file]["size"]
    assert damage.error.__name__ in str(report)
    first = report.problems[0]
    check_error(file, damage, first, named_record(file, damage))
    assert first.offset == damage.offset
    if damage.when == "read":
        assert [problem.record for problem in report.problems] == list(damage.records)
        assert report.records == ENTRIES[file]["compared_with_original_n"] - len(damage.records)


@pytest.mark.usefixtures("old_files_allowed")
@pytest.mark.parametrize("file", CORRUPT)
def test_without_checksums_only_structure_is_checked(file: str) -> None:
    damage = CORRUPT[file]
    if damage.unchecked == "refused":
        with pytest.raises(damage.error if damage.error is not ChecksumError else FormatError):
            anyrecord.open(FOLDER / file, checksums=False)
        return
    original = original_of(file)
    with anyrecord.open(FOLDER / file, checksums=False) as records:
        found = list(records)
    different = [i for i, (one, other) in enumerate(zip(found, original, strict=True)) if one != other]
    assert different == (list(damage.records) if damage.unchecked == "other" else [])


def original_of(file: str) -> list[bytes]:
    """The samples before the damage."""
    if file == "evil_empty_crc.ffr":
        with anyrecord.open(FOLDER / file, checksums=False) as unchecked:
            assert digest(unchecked) == ENTRIES[file]["original_records_sha256"]
            return list(unchecked)
    with anyrecord.open(BASIC) as basic:
        assert digest(basic) == ENTRIES[file]["original_records_sha256"]
        return list(basic)
