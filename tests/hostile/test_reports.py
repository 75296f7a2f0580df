"""What `verify` says about damaged files: every byte in one sum, what is left counted, and records by their numbers."""

from __future__ import annotations

import io
import itertools
import struct

import anyrecord
import pytest
from anyrecord import RecordError, Report
from conformance.formats import Case

from hostile.small import places

RECORDS = [b"record number %03d" % number * (1 + number % 3) for number in range(40)]
N = len(RECORDS)


def many_chunks(case: Case) -> bytes:
    """The bytes of a file of several chunks."""
    options = {**case.options, **({"chunk_bytes": 200} if case.format.name == "recordio" else {})}
    if options.get("group_size", 0) > N:
        options["group_size"] = 7
    file = io.BytesIO()
    with anyrecord.create(file, format=case.format.name, **options) as out:
        out.write_many(RECORDS)
    return file.getvalue()


def verified(data: bytes, case: Case) -> Report:
    """The report, which adds up whatever the bytes are."""
    report = anyrecord.verify(data, format=case.format.name)
    assert report.file_bytes == len(data)
    sizes = report.record_bytes, report.meta_bytes, report.unused_bytes, report.damaged_bytes
    assert sum(sizes) == len(data), report
    assert min(sizes) >= 0
    assert len(report.damaged) == len(report.problems) == report.problem_count
    assert report.damaged_bytes == sum(end - begin for _, begin, end in report.damaged)
    assert report.unused_bytes == sum(end - begin for _, begin, end in report.unused)
    for problem in report.problems:
        assert problem.record is None or 0 <= problem.record <= N
    return report


def unreadable(data: bytes, case: Case) -> list[int] | None:
    """The records that cannot be read; None where the file cannot be opened, or has another number of them."""
    try:
        records = anyrecord.open(data, format=case.format.name, cache_bytes=0)
    except RecordError:
        return None
    if len(records) != N:
        return None
    lost = []
    for number in range(N):
        try:
            assert records[number] == RECORDS[number]
        except RecordError:
            lost.append(number)
    return lost


def test_one_damaged_byte_is_named_by_its_first_record_and_the_others_are_counted(case: Case) -> None:
    data = many_chunks(case)
    assert verified(data, case).ok
    numbered = 0
    for offset in places(data)[:: 3 if len(data) < 4000 else 7]:
        bad = bytearray(data)
        bad[offset] ^= 0x55
        report = verified(bytes(bad), case)
        lost = unreadable(bytes(bad), case)
        if lost is None:
            continue
        if lost:
            (problem,) = report.problems
            assert problem.record == lost[0], f"byte {offset}"
            assert report.records == N - len(lost), f"byte {offset}"
            ((_, begin, end),) = report.damaged
            assert begin <= offset < end
            numbered += 1
        else:
            assert report.records == N, f"byte {offset}"
    # One stream is unpacked at open, so that damage there is an error of the file and not of one of its records.
    assert numbered >= 10 or case.variant.is_unpacked_at_open


def test_damage_that_hides_a_chunk_leaves_the_numbers_of_those_behind_it(case: Case) -> None:
    if case.format.name not in ("array_record", "ffrecord"):
        return  # only a table tells how many records were there
    data = many_chunks(case)
    at = [data.index(b"record number %03d" % number) for number in (7, 30)] if b"record number 030" in data else []
    if not at:
        return
    bad = bytearray(data)
    for offset in at:
        if case.format.name == "array_record":
            bad[offset - 60 : offset] = bytes(60)  # the header of the chunk
        bad[offset] ^= 1
    numbers = [problem.record for problem in verified(bytes(bad), case).problems]
    per_chunk = 7 if case.options.get("group_size", 1) > 1 else 1
    expected = {number // per_chunk * per_chunk for number in (7, 30)}
    # The end of the chunk before it may have been zeroed with the header.
    assert expected <= set(numbers) <= expected | {number - per_chunk for number in expected}


def test_what_is_left_of_a_cut_file_is_counted(case: Case) -> None:
    data = many_chunks(case)
    sizes = sorted({*range(0, len(data), max(1, len(data) // 300)), *range(max(0, len(data) - 50), len(data) + 1)})
    counts = [verified(data[:size], case).records for size in sizes]
    assert counts == sorted(counts), "a longer piece holds no fewer"
    assert counts[-1] == N
    assert counts[0] == 0
    if not case.variant.is_unpacked_at_open:
        assert len(set(counts)) > 3, "chunk by chunk"


@pytest.mark.parametrize("cut", range(0, 700, 7))
def test_samples_before_the_cut_of_an_ffrecord_file_are_counted(cut: int) -> None:
    file = io.BytesIO()
    with anyrecord.create(file, format="ffrecord") as out:
        out.write_many(RECORDS)
    data = file.getvalue()[: len(file.getvalue()) - cut]
    ends = list(itertools.accumulate(map(len, RECORDS), initial=12 + 12 * N))[1:]
    report = anyrecord.verify(data, format="ffrecord")
    assert report.records == sum(end <= len(data) for end in ends)
    assert report.ok == (cut == 0)
    assert (report.meta_bytes, report.damaged_bytes) == (
        12 + 12 * N,
        len(data) - max([12 + 12 * N, *(e for e in ends if e <= len(data))]),
    )


@pytest.mark.parametrize("wrong", [0, 1, 2**40, 2**63, 2**64 - 1, "before", "after"])
@pytest.mark.parametrize("sample", [0, 1, 17, N - 1])
def test_one_wrong_offset_of_an_ffrecord_file_loses_two_samples_at_the_most(sample: int, wrong: int | str) -> None:
    file = io.BytesIO()
    with anyrecord.create(file, format="ffrecord") as out:
        out.write_many(RECORDS)
    data = bytearray(file.getvalue())
    at = 12 + 4 * N + 8 * sample
    (offset,) = struct.unpack_from("<Q", data, at)
    changed = {"before": offset - 3, "after": offset + 3}.get(wrong, wrong) if isinstance(wrong, str) else wrong
    struct.pack_into("<Q", data, at, changed)
    report = anyrecord.verify(bytes(data), format="ffrecord")
    assert report.records >= N - 2
    assert not report.ok
    sizes = report.record_bytes, report.meta_bytes, report.unused_bytes, report.damaged_bytes
    assert sum(sizes) == len(data)


def test_a_damaged_padded_array_record_keeps_its_numbers() -> None:
    file = io.BytesIO()
    with anyrecord.create(file, format="array_record", codec="none", pad_to_block_boundary=True) as out:
        out.write_many(RECORDS[:4])
    data = bytearray(file.getvalue())
    data[data.index(RECORDS[2])] ^= 1
    report = anyrecord.verify(bytes(data))
    assert [problem.record for problem in report.problems] == [2]
    assert report.records == 3


def test_the_format_riegeli_adds_up_and_numbers_its_records() -> None:
    file = io.BytesIO()
    with anyrecord.create(file, format="array_record", codec="none", group_size=4) as out:
        out.write_many(RECORDS)
    data = file.getvalue()
    about, report = anyrecord.info(data, format="riegeli"), anyrecord.verify(data, format="riegeli")
    assert report.ok
    for field in ("records", "chunks", "file_bytes", "record_bytes"):
        assert getattr(about, field) == getattr(report, field), field
    assert report.record_bytes + report.meta_bytes == len(data)
    bad = bytearray(data)
    bad[bad.index(RECORDS[21])] ^= 1
    (problem,) = anyrecord.verify(bytes(bad), format="riegeli").problems
    assert problem.record == 20
