"""Going through records: one by one, in batches, looking for one."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from anyrecord import Records
from turns import turn

from conformance.storages import RECORDS, Stored

N = len(RECORDS)


def test_records_are_a_sequence(records: Records) -> None:
    assert isinstance(records, Sequence)
    assert isinstance(records[1:3], Sequence)
    assert isinstance(records.map(len), Sequence)


def test_iterating_gives_every_record_once_in_order(records: Records) -> None:
    assert list(records) == list(RECORDS)
    assert list(records) == list(RECORDS), "a second time"


def test_an_iterator_is_its_own_iterator_and_stays_at_its_end(records: Records) -> None:
    iterator = iter(records)
    assert isinstance(iterator, Iterator)
    assert iter(iterator) is iterator
    assert len(list(iterator)) == N
    assert list(iterator) == []


TAKEN = [0, 1, 7, 8, 9, 30, N]


def test_an_iterator_left_early_goes_on_where_it_was(stored: Stored) -> None:
    for taken in TAKEN:
        with turn(taken), stored.opened() as records:
            iterator = iter(records)
            assert list(itertools.islice(iterator, taken)) == list(RECORDS[:taken])
            assert operator.length_hint(iterator) == N - taken
            assert list(iterator) == list(RECORDS[taken:])


def test_two_iterators_do_not_disturb_each_other_nor_reads_between(records: Records) -> None:
    ahead, behind = iter(records), iter(records)
    for _ in range(5):
        next(ahead)
    for position, (early, late) in enumerate(zip(behind, ahead, strict=False)):
        assert early == RECORDS[position]
        assert late == RECORDS[position + 5]
        assert records[-1 - position] == RECORDS[-1 - position]


def test_an_iterator_keeps_its_records_alive(records: Records) -> None:
    iterator = iter(records[::2])
    assert list(iterator) == list(RECORDS[::2])


def test_reversed_goes_backwards(records: Records) -> None:
    assert list(reversed(records)) == list(RECORDS[::-1])
    assert list(reversed(records[3:9])) == list(RECORDS[3:9][::-1])


def test_in_compares_with_every_record(records: Records) -> None:
    assert RECORDS[N // 2] in records
    assert b"twice" in records
    assert b"no such record" not in records
    assert None not in records
    assert b"last" not in records[:10]


def test_index_and_count_are_those_of_a_list(records: Records) -> None:
    expected = list(RECORDS)
    for record in (b"twice", b"", b"x", b"last"):
        assert records.index(record) == expected.index(record)
        assert records.count(record) == expected.count(record)
    assert records.count(b"no such record") == 0
    assert records.index(b"twice", 15) == expected.index(b"twice", 15)
    assert records.index(b"", -5) == expected.index(b"", -5)
    assert records.index(b"", 1, -1) == expected.index(b"", 1, -1)


BOUNDS: list[tuple[int, ...]] = [(), (0, 14), (18,), (15, 17), (-3, -1), (N + 5,), (20, 10)]


def test_index_of_a_record_that_is_not_there_is_a_value_error(records: Records) -> None:
    for bounds in BOUNDS:
        with turn(bounds):
            record = b"twice" if bounds else b"no such record"
            with pytest.raises(ValueError):
                list(RECORDS).index(record, *bounds)
            with pytest.raises(ValueError):
                records.index(record, *bounds)


SIZES = [1, 2, 7, N - 1, N, N + 1, 10 * N, 10**30]


def test_batches_are_lists_of_that_size_and_a_rest(stored: Stored) -> None:
    for size in SIZES:
        with turn(size), stored.opened() as records:
            expected = [list(RECORDS[at : at + size]) for at in range(0, N, size)]
            assert list(records.batches(size)) == expected
            assert len(records.batches(size)) == len(expected)
            whole = expected if len(expected[-1]) == size else expected[:-1]
            assert list(records.batches(size, drop_last=True)) == whole
            assert len(records.batches(size, drop_last=True)) == len(whole)


def test_batches_can_be_iterated_again_and_by_several_at_a_time(records: Records) -> None:
    batches = records.batches(7)
    assert list(batches) == list(batches)
    first, second = iter(batches), iter(batches)
    assert next(first) == list(RECORDS[:7])
    assert next(first) == list(RECORDS[7:14])
    assert next(second) == list(RECORDS[:7])
    assert (first.__length_hint__(), second.__length_hint__()) == (len(batches) - 2, len(batches) - 1)
    with pytest.raises(TypeError, match="not an iterator"):
        next(batches)  # type: ignore[call-overload]
    assert repr(batches) == f"<anyrecord.Batches: {len(batches)} of 7 from {records!r}>"


def test_batches_of_a_slice_are_batches_of_the_slice(records: Records) -> None:
    assert list(records[4:11][::-1].batches(3)) == [
        list(RECORDS[10:7:-1]),
        list(RECORDS[7:4:-1]),
        list(RECORDS[4:5]),
    ]
    assert list(records[:0].batches(3)) == []
    assert (len(records[4:11].batches(3)), len(records[:0].batches(3))) == (3, 0)


WRONG_SIZES: list[Any] = [0, -1, 1.5, "3", None]


def test_a_batch_size_that_is_no_positive_number_is_refused_at_once(records: Records) -> None:
    for size in WRONG_SIZES:
        with turn(size):
            with pytest.raises((ValueError, TypeError)) as caught:
                records.batches(size)
            assert repr(size) in str(caught.value)
