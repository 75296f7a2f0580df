"""Every byte damaged in every way, every cut, and bytes too many: an error or the right records, never others."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import anyrecord
import pytest
from anyrecord import ChecksumError, FormatError, TruncatedError
from conformance.formats import FIRST_CASES, Case
from conformance.storages import write

from hostile.small import RECORDS, is_reported, places, read_all, small_file


def damaged(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every byte with each of its bits flipped, and with all bits set, where that changes it."""
    for offset in places(data):
        byte = data[offset]
        for other in sorted({*(byte ^ 1 << bit for bit in range(8)), 0xFF} - {byte}):
            yield offset, data[:offset] + bytes([other]) + data[offset + 1 :]


def test_the_small_file_is_right_before_it_is_damaged(case: Case) -> None:
    data = small_file(case)
    assert read_all(data).records == RECORDS
    assert not is_reported(data)
    assert sum(1 for _ in damaged(data)) >= 8 * len(places(data))


@pytest.mark.parametrize("is_named", [True, False], ids=["format given", "format detected"])
def test_one_damaged_byte_never_gives_wrong_records(case: Case, is_named: bool) -> None:
    format = case.format.name if is_named else None
    for offset, data in damaged(small_file(case)):
        outcome = read_all(data, format)
        if outcome.error is None:
            assert outcome.records == RECORDS, f"byte {offset}"
        else:
            assert outcome.records == RECORDS[: len(outcome.records)], f"byte {offset}"
            assert isinstance(outcome.error, FormatError), f"byte {offset}: {outcome.error!r}"
            assert outcome.error.path == "<bytes>", f"byte {offset}"


def test_one_damaged_byte_costs_no_record_of_another_chunk(case: Case) -> None:
    """Where a file still opens, each record is the right one or an error, whatever happened to the others."""
    for offset, data in damaged(small_file(case)):
        if not read_all(data, case.format.name).opened:
            continue
        lost = set()
        for index in range(len(RECORDS)):
            outcome = read_all(data, case.format.name, index)
            if outcome.error is None:
                assert outcome.records == (RECORDS[index],), f"byte {offset}, record {index}"
            else:
                assert outcome.error.record == index, f"byte {offset}: {outcome.error}"
                lost.add(case.chunk_and_row(index)[0])
        assert len(lost) <= 1, f"byte {offset}"


def test_verify_reports_every_damaged_byte(case: Case) -> None:
    detected = -1
    for offset, data in damaged(small_file(case)):
        if not is_harmless(case, data):
            assert is_reported(data, case.format.name), f"byte {offset}"
            if detected != offset:  # that the format is not given changes nothing but who names it: once for each byte
                detected = offset
                assert is_reported(data), f"byte {offset}"


def test_verify_names_the_damaged_file(case: Case, tmp_path: Path) -> None:
    path = tmp_path / f"damaged{case.suffix}"
    # Every 41st of all mutations: a prime, so that all bits and all kinds of bytes have their turn.
    for offset, data in itertools.islice(damaged(small_file(case)), 0, None, 41):
        if not is_harmless(case, data):
            path.write_bytes(data)
            report = anyrecord.verify(path)
            assert not report.ok, f"byte {offset}"
            assert report.problems[0].path == str(path), f"byte {offset}"
            assert report.file_bytes == len(data), f"byte {offset}"


def is_harmless(case: Case, data: bytes) -> bool:
    """Whether a damaged file is as good as the whole one, where the format has bits that mean nothing."""
    return case.variant.has_unchecked_bits and read_all(data, case.format.name).records == RECORDS


def test_hardly_any_bit_is_without_a_check(case: Case) -> None:
    data = small_file(case)
    harmless = {offset for offset, damage in damaged(data) if is_harmless(case, damage)}
    assert bool(harmless) == case.variant.has_unchecked_bits
    assert len(harmless) <= 9, "time and system in a gzip header, and the ends of the compressed blocks"


def test_two_damaged_bytes_never_give_wrong_records(case: Case) -> None:
    data, chance = small_file(case), random.Random(3)
    for _ in range(500):
        twice = bytearray(data)
        for offset in chance.sample(range(len(data)), 2):
            twice[offset] ^= chance.randrange(1, 256)
        outcome = read_all(bytes(twice), case.format.name)
        assert outcome.error is not None or outcome.records == RECORDS
        assert outcome.records == RECORDS[: len(outcome.records)]
        assert is_harmless(case, bytes(twice)) or is_reported(bytes(twice), case.format.name)


@pytest.mark.parametrize("is_named", [True, False], ids=["format given", "format detected"])
def test_truncated_at_every_byte_raises(case: Case, is_named: bool) -> None:
    data, format = small_file(case), case.format.name if is_named else None
    prefixes = set()
    # Every offset, once for each format; a few fewer in the padding of its other variants.
    for size in range(len(data)) if is_named and case in FIRST_CASES else places(data):
        if size == 0 and is_named and case.format.empty_file_is_valid:
            continue
        outcome = read_all(data[:size], format)
        if outcome.error is not None:
            assert isinstance(outcome.error, FormatError), f"cut at {size}: {outcome.error!r}"
            assert not outcome.opened or not case.format.sees_cut_between_chunks, f"cut at {size}"
        else:
            prefixes.add(outcome.records)
        assert outcome.records == RECORDS[: len(outcome.records)], f"cut at {size}"
    if case.format.sees_cut_between_chunks:
        assert not prefixes
    else:
        assert prefixes <= {RECORDS[:count] for count in range(len(RECORDS))}


def test_truncated_at_every_byte_is_reported_by_verify(case: Case, tmp_path: Path) -> None:
    data, path = small_file(case), tmp_path / f"cut{case.suffix}"
    for size in places(data)[1:]:
        path.write_bytes(data[:size])
        unseen = read_all(path).error is None
        assert not unseen or not case.format.sees_cut_between_chunks
        assert anyrecord.verify(path).ok == unseen, f"cut at {size}"


def test_the_expected_number_of_records_closes_what_a_cut_leaves_open(case: Case) -> None:
    data = small_file(case)
    for size in places(data)[1:]:
        with pytest.raises(FormatError):
            list(anyrecord.open(data[:size], format=case.format.name, expected_records=len(RECORDS)))


@pytest.mark.parametrize("extra", [b"\0", bytes(12), bytes(1000), b"\xff", b"\xff" * 40, b"garbage"], ids=repr)
def test_bytes_appended_to_a_file_are_an_error(case: Case, extra: bytes) -> None:
    outcome = read_all(small_file(case) + extra, case.format.name)
    assert isinstance(outcome.error, FormatError)
    assert outcome.records == RECORDS[: len(outcome.records)]
    assert is_reported(small_file(case) + extra, case.format.name)


def test_a_file_appended_to_itself_never_gives_wrong_records(case: Case) -> None:
    data = 2 * small_file(case)
    outcome = read_all(data, case.format.name)
    assert outcome.records == (2 * RECORDS)[: len(outcome.records)]
    if outcome.error is None and outcome.records != 2 * RECORDS:
        # A footer's offsets count from the beginning of the file, so the second copy points into the first.
        assert outcome.records == RECORDS
        assert is_reported(data, case.format.name)


def test_a_file_cut_while_it_is_open_is_an_error(case: Case, tmp_path: Path) -> None:
    path = tmp_path / f"shrinking{case.suffix}"
    write(path, [bytes([i]) * 50_000 for i in range(20)], case)
    with anyrecord.open(path, cache_bytes=0) as records:
        assert records[0] == bytes(50_000)
        with path.open("r+b") as file:
            file.truncate(100)
        if case.variant.is_unpacked_at_open:
            assert list(records) == [bytes([i]) * 50_000 for i in range(20)]
            return
        with pytest.raises(TruncatedError) as caught:
            records[19]
        assert caught.value.path == str(path)
        with pytest.raises(FormatError):
            list(records)


def test_damage_in_a_large_record_is_found_by_every_way_to_read(case: Case, tmp_path: Path) -> None:
    path = tmp_path / f"large{case.suffix}"
    write(path, [b"before", random.Random(1).randbytes(3_000_000), b"after"], case)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    if case.variant.is_unpacked_at_open:
        with pytest.raises(FormatError) as refused:
            anyrecord.open(path)[1]
        assert refused.value.path == str(path)
        assert not anyrecord.verify(path).ok
        return
    with anyrecord.open(path) as records:
        for read in (
            lambda: records[1],
            lambda: records[[0, 1, 2]],
            lambda: list(records),
            lambda: records.read_into(bytearray(4_000_000), [1]),
            lambda: records.read_packed([0, 1]),
            lambda: records[1:][0],
            lambda: list(records.batches(3)),
        ):
            with pytest.raises(ChecksumError) as caught:
                read()
            assert caught.value.path == str(path)
            assert caught.value.record == 1 or case.variant.records_per_chunk != 1, "or one that shares its chunk"
            assert caught.value.offset is not None
    report = anyrecord.verify(path)
    assert report.problem_count == 1
    assert isinstance(report.problems[0], ChecksumError)
