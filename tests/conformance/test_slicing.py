"""A slice is a `Records` again and means what it means for a list."""

from __future__ import annotations

import pytest
from anyrecord import Records
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.storages import RECORDS, Stored

N = len(RECORDS)
EDGES = st.none() | st.integers(-N - 3, N + 3) | st.sampled_from([2**63, -(2**63) - 1, 10**30])
STEPS = st.none() | st.integers(-N - 1, N + 1).filter(bool) | st.sampled_from([2**63 - 1, -(2**63), 10**30])
SLICES = st.builds(slice, EDGES, EDGES, STEPS)
SMALL_SLICES = st.builds(slice, EDGES, EDGES, st.none() | st.integers(-5, 5).filter(bool))


def test_a_slice_is_records_again(records: Records) -> None:
    part = records[10:20]
    assert type(part) is Records
    assert len(part) == 10
    assert list(part) == list(RECORDS[10:20])
    assert part[0] == RECORDS[10]
    assert part[-1] == RECORDS[19]
    assert part[[9, 0]] == [RECORDS[19], RECORDS[10]]


def test_a_slice_ends_where_it_ends(records: Records) -> None:
    part = records[10:20]
    for beyond in (10, -11):
        with pytest.raises(IndexError):
            part[beyond]


def test_a_slice_of_everything_and_of_nothing(records: Records) -> None:
    assert list(records[:]) == list(RECORDS)
    for nothing in (records[5:5], records[20:10], records[N:], records[: -N - 1], records[N:N:-1]):
        assert len(nothing) == 0
        assert list(nothing) == []
        assert nothing[[]] == []
        assert list(nothing[::-1]) == []
        with pytest.raises(IndexError):
            nothing[0]


def test_a_step_of_zero_is_refused_like_a_list_does(records: Records) -> None:
    with pytest.raises(ValueError, match="zero"):
        records[::0]


@given(which=SLICES)
@settings(max_examples=60, deadline=None)
def test_any_slice_is_the_slice_of_a_list(stored: Stored, which: slice) -> None:
    with stored.opened() as records:
        expected = list(RECORDS[which])
        part = records[which]
        assert len(part) == len(expected)
        assert list(part) == expected
        assert part[range(len(expected))] == expected
        assert [part[i] for i in range(-len(expected), 0)] == expected


@given(slices=st.lists(SMALL_SLICES, min_size=2, max_size=5), index=st.integers(0, N))
@settings(max_examples=60, deadline=None)
def test_slices_of_slices_are_the_slices_of_slices_of_a_list(stored: Stored, slices: list[slice], index: int) -> None:
    with stored.opened() as records:
        expected = list(RECORDS)
        for which in slices:
            records, expected = records[which], expected[which]
        assert list(records) == expected
        if expected:
            index %= len(expected)
            assert records[index] == expected[index]
            where = records.locate(index)
            assert (where.path, where.chunk, where.row) == _place(stored, _original(slices, index))


def _original(slices: list[slice], index: int) -> int:
    numbers = range(N)
    for which in slices:
        numbers = numbers[which]
    return numbers[index]


def _place(stored: Stored, index: int) -> tuple[str, int, int]:
    file, number = stored.place(index)
    return file, *stored.case.chunk_and_row(number)
