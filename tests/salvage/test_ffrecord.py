"""FFRecord keeps everything about its samples in a table before them. What is damaged or missing there is proved from
the rest."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pytest

from salvage.saving import file_bytes, saved, saved_and_report

RECORDS = [random.Random(number).randbytes(number * 7 % 50 + 1) for number in range(40)]
N = len(RECORDS)
CHECKSUMS, OFFSETS, DATA = 12, 12 + 4 * N, 12 + 12 * N


def crc_table(records: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", zlib.crc32(record)) for record in records)


def offset_table(records: list[bytes]) -> bytes:
    offsets, at = b"", 12 + 12 * len(records)
    for record in records:
        offsets += struct.pack("<Q", at)
        at += len(record)
    return offsets


def whole(records: list[bytes] = RECORDS) -> bytes:
    data = file_bytes("ffrecord", records)
    tables = crc_table(records) + offset_table(records)
    assert data == struct.pack("<IQ", zlib.crc32(data[4 : 12 + len(tables)]), len(records)) + tables + b"".join(records)
    return data


def test_a_destroyed_sector_of_the_offsets_costs_nothing() -> None:
    for first in range(N - 10):
        damaged = bytearray(whole())
        damaged[OFFSETS + 8 * first : OFFSETS + 8 * first + 80] = random.Random(first).randbytes(80)
        found, report = saved_and_report(damaged, "ffrecord", strict=True)
        assert found == RECORDS, first
        assert report
        assert report.found_by_search == 0


def test_several_damaged_checksums_cost_nothing() -> None:
    damaged = bytearray(whole())
    for number in (3, 17, 30):
        damaged[CHECKSUMS + 4 * number] ^= 0x21
    assert saved(damaged, "ffrecord", strict=True) == RECORDS


@pytest.mark.parametrize("begin", [0, CHECKSUMS, CHECKSUMS + 4 * 5])
def test_checksums_that_became_zeros_are_not_taken_for_empty_samples(begin: int) -> None:
    """The checksum of an empty sample is 0, too."""
    damaged = bytearray(whole())
    damaged[begin : CHECKSUMS + 4 * 20] = bytes(CHECKSUMS + 4 * 20 - begin)
    found, report = saved_and_report(damaged, "ffrecord")
    kept = RECORDS[:5] if begin > CHECKSUMS else []
    assert found == kept + RECORDS[20:]
    assert not report


def test_empty_samples_beside_a_damaged_offset_cost_nothing() -> None:
    records = [b"", b"one", b"", b"", b"two", b"", b"three", b""]
    data = whole(records)
    for number in range(len(records)):
        damaged = bytearray(data)
        damaged[12 + 4 * len(records) + 8 * number] ^= 0x03
        assert saved(damaged, "ffrecord") == records, number


def test_a_damaged_checksum_beside_a_damaged_sample_costs_only_the_sample() -> None:
    damaged = bytearray(whole())
    damaged[CHECKSUMS + 4 * 5] ^= 0x21
    damaged[DATA + sum(map(len, RECORDS[:20]))] ^= 1
    found, report = saved_and_report(damaged, "ffrecord", strict=True)
    assert found == [*RECORDS[:20], *RECORDS[21:]]
    assert [problem.record for problem in report.problems] == [20]


def test_damage_in_the_count_the_header_checksum_and_an_offset_together_costs_nothing() -> None:
    for at in (0, 4, 5, 11, OFFSETS, OFFSETS + 8 * 7, OFFSETS + 8 * (N - 1)):
        damaged = bytearray(whole())
        damaged[1] ^= 0x40  # the checksum of the tables proves nothing any more
        damaged[at] ^= 0x03
        assert saved(damaged, "ffrecord") == RECORDS, at


def test_a_sample_that_nothing_proves_is_not_saved() -> None:
    """Its checksum and the checksum of the tables are both damaged: it may be damaged as well."""
    damaged = bytearray(whole())
    damaged[0] ^= 1
    damaged[CHECKSUMS + 4 * 5] ^= 0x21
    found, report = saved_and_report(damaged, "ffrecord")
    assert found == [*RECORDS[:5], *RECORDS[6:]]
    assert report.problems[0].record == 5


@pytest.mark.parametrize("size", [13, 40, DATA, len(whole())])
def test_an_unfinished_file_of_the_original_proves_nothing(size: int) -> None:
    """Its writer leaves a hole for the header, and fills it when it is closed."""
    data = (bytes(DATA) + b"".join(RECORDS))[:size]
    found, report = saved_and_report(data, "ffrecord")
    assert found == []
    assert not report
    assert "unfinished" in str(report.problems[0])


def states_of_closing() -> list[tuple[str, bytes, int]]:
    """What the original leaves if it is killed while it is closed: what it wrote, and the records that are proved."""
    samples, head = b"".join(RECORDS), struct.pack("<IQ", 0, N)
    checksums, offsets = crc_table(RECORDS), offset_table(RECORDS)
    return [
        ("the count", head + bytes(12 * N) + samples, 0),
        ("the checksums", head + checksums + bytes(8 * N) + samples, N),
        ("some checksums", head + checksums[:80] + bytes(4 * N - 80) + bytes(8 * N) + samples, 20),
        ("some offsets", head + checksums + offsets[:100] + bytes(8 * N - 100) + samples, N),
        ("all but the checksum of the tables", head + checksums + offsets + samples, N),
    ]


@pytest.mark.parametrize(
    ("what", "data", "proved"), states_of_closing(), ids=[what for what, *_ in states_of_closing()]
)
def test_a_file_whose_closing_was_interrupted_gives_what_its_tables_prove(what: str, data: bytes, proved: int) -> None:
    found, report = saved_and_report(data, "ffrecord")
    assert found == RECORDS[:proved], what
    if proved < N:
        assert not report
        assert report.problems[-1].record == proved


@pytest.mark.parametrize("done", [0, 1, 7, N - 1, N])
@pytest.mark.parametrize("behind", [0, 3, 500])
def test_a_temporary_with_a_part_of_its_table_gives_a_prefix(done: int, behind: int) -> None:
    """The count and the entries of the samples so far are written; samples without an entry may follow."""
    checksums, offsets = crc_table(RECORDS)[: 4 * done], offset_table(RECORDS)[: 8 * done]
    data = struct.pack("<IQ", 0, N) + checksums.ljust(4 * N, b"\0") + offsets.ljust(8 * N, b"\0")
    samples = b"".join(RECORDS)
    written = sum(map(len, RECORDS[:done]))
    data += samples[: written + behind]
    found, report = saved_and_report(data, "ffrecord")
    assert found == RECORDS[:done]
    assert report.ok == (done == N)
    Path(".train.ffr.1a2b3c4d.tmp").write_bytes(data)
    assert saved(".train.ffr.1a2b3c4d.tmp") == found


def test_a_temporary_cut_inside_its_last_sample_gives_the_ones_before() -> None:
    data = struct.pack("<IQ", 0, N) + crc_table(RECORDS) + offset_table(RECORDS) + b"".join(RECORDS)
    for size in range(DATA, len(data)):
        ends = [DATA + sum(map(len, RECORDS[: number + 1])) for number in range(N)]
        assert saved(data[:size], "ffrecord") == RECORDS[: sum(end <= size for end in ends)]


def test_old_files_without_a_checksum_of_the_tables_are_proved_by_their_samples(golden: Path) -> None:
    for name in ("old_v0.ffr", "gap_after_header.ffr", "basic.ffr", "empty_samples.ffr", "many_tiny.ffr"):
        data = (golden / "ffrecord" / name).read_bytes()
        found, report = saved_and_report(data, "ffrecord")
        assert report, f"{name}: {report}"
        n = struct.unpack_from("<Q", data, 4)[0]
        assert len(found) == n
        # Where samples begin after a gap, only the first offset says where.
        first = 12 + 4 * n + 8 * (name == "gap_after_header.ffr")
        for at in range(first, min(12 + 12 * n, first + 400)):
            damaged = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
            assert saved(damaged, "ffrecord") == found, f"{name}, byte {at}"


def test_empty_samples_are_saved_wherever_they_are() -> None:
    records = [b"", b"", b"a", b"", b"bc" * 30, b"", b""]
    data = whole(records)
    for at in range(12 + 12 * len(records)):
        damaged = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        assert saved(damaged, "ffrecord") == records, at


@pytest.mark.parametrize("appended", [b"\n", bytes(512), b"another file", random.Random(1).randbytes(65536)])
@pytest.mark.parametrize("last", [b"the last one", b"", bytes(70_000)])
def test_appended_bytes_cost_no_sample(appended: bytes, last: bytes) -> None:
    """The tables do not say where the last sample ends: the end of the file does."""
    records = [*RECORDS[:5], last]
    data = whole(records)
    found, report = saved_and_report(data + appended, "ffrecord")
    assert found == records
    assert not report
    assert report.found_by_search == 1
    assert [skip[1:] for skip in report.skipped] == [(len(data), len(data) + len(appended))]
    assert saved(data + appended, "ffrecord", strict=True) == records[:-1]


def test_far_more_appended_bytes_cost_the_last_sample_alone() -> None:
    """Where a checksum fits by chance must not be taken for the end of a large sample."""
    found, report = saved_and_report(whole() + random.Random(2).randbytes(70_000), "ffrecord")
    assert found == RECORDS[:-1]
    assert not report
