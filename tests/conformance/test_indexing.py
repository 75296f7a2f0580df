"""`records[...]`: numbers and lists of numbers mean what they mean for a list."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from anyrecord import Permutation, Records
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import turn

from conformance.storages import RECORDS, Stored

N = len(RECORDS)
INDICES = [5, 0, N - 1, 5, -1, -N, 16, 17, 18, 5, 3]
"""Any order, repeats, both ends, both signs, across files."""


def at(indices: list[int]) -> list[bytes]:
    return [RECORDS[i] for i in indices]


def test_the_length_is_the_number_of_records(records: Records) -> None:
    assert len(records) == N


def test_every_record_is_found_by_its_number_from_either_end(records: Records) -> None:
    assert [records[i] for i in range(N)] == list(RECORDS)
    assert [records[i - N] for i in range(N)] == list(RECORDS)
    assert type(records[3]) is bytes


INTEGERS: list[Any] = [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.intp]


def test_a_numpy_integer_is_an_index(records: Records) -> None:
    for integer in INTEGERS:
        with turn(integer):
            assert records[integer(7)] == RECORDS[7]


def test_whatever_a_list_takes_as_an_index_is_one(records: Records) -> None:
    class Seven:
        def __index__(self) -> int:
            return 7

    assert records[Seven()] == RECORDS[7]
    assert records[True] == RECORDS[1]
    assert records[False] == RECORDS[0]
    assert records[np.array(7)] == RECORDS[7]
    assert records[np.int8(-1)] == RECORDS[-1]


PAST_EITHER_END = [N, -N - 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**30, -(10**30)]


def test_a_number_past_either_end_is_an_index_error_that_names_it(records: Records) -> None:
    for index in PAST_EITHER_END:
        with turn(index):
            for key in (index, [0, index], (index, 0)):
                with pytest.raises(IndexError) as caught:
                    records[key]
                assert str(index) in str(caught.value)
                assert str(N) in str(caught.value)


PAST_THE_END: list[Any] = [
    np.array([0, N]),
    np.array([-N - 1]),
    np.array([2**63], np.uint64),
    range(N - 1, N + 1),
    range(-N - 1, 0),
    range(2**62, 2**63 - 1, 2**61),
    array.array("q", [N]),
]


def test_one_number_past_the_end_in_an_array_or_a_range_is_an_index_error(records: Records) -> None:
    for indices in PAST_THE_END:
        with turn(indices), pytest.raises(IndexError):
            records[indices]


WRONG: dict[str, Any] = {
    "float": 1.0,
    "nan": float("nan"),
    "str": "1",
    "bytes": b"\1",
    "None": None,
    "object": object(),
    "list of floats": [1.0],
    "list of str": ["1"],
    "list of None": [None],
    "a list in a list": [[1]],
    "good ones before a bad one": [0, 1, 2.0],
    "mask": np.zeros(N, np.bool_),
    "list of numpy bools": [np.True_],
    "float array": np.zeros(2),
    "half array": np.zeros(2, np.float16),
    "complex array": np.zeros(2, np.complex128),
    "time array": np.zeros(2, "m8[s]"),
    "str array": np.array(["1"]),
    "record array": np.zeros(2, [("a", "i4")]),
    "array of two dimensions": np.zeros((2, 2), np.int64),
    "array of floats": array.array("d", [1.0]),
    "slice of floats": slice(1.0, 2.0),
}


def test_anything_else_is_a_type_error(records: Records) -> None:
    for name, key in WRONG.items():
        with turn(name), pytest.raises(TypeError):
            records[key]


BOOLEANS: dict[str, Callable[[], Any]] = {
    "list": lambda: [True, False],
    "list after numbers": lambda: [0, 1, True],
    "list after numpy numbers": lambda: [np.int64(0), np.int8(1), True],
    "tuple": lambda: (False,),
    "generator": lambda: (i < 2 for i in range(4)),
    "iterator": lambda: iter([True]),
    "set": lambda: {True},
    "mask": lambda: np.ones(N, np.bool_),
    "strided mask": lambda: np.ones(2 * N, np.bool_)[::2],
    "array of objects": lambda: np.array([True, False], object),
    "array of objects after numbers": lambda: np.array([0, 1, False], object),
    "list of numpy booleans": lambda: [np.True_, np.False_],
    "list of arrays of one": lambda: [np.array(1), np.array(True)],
    "memoryview": lambda: memoryview(bytes([0, 1])).cast("?"),
}


def test_booleans_are_no_record_numbers_and_are_told_what_to_use_instead(records: Records) -> None:
    order = Permutation(N, seed=1)
    reads: list[Callable[[Any], object]] = [
        lambda keys: records[keys],
        records.__getitems__,
        records._getitems,
        records.map(len).__getitem__,
        records.map(len).__getitems__,
        lambda keys: records.read_into(bytearray(100), keys),
        order.take,
    ]
    for name, booleans in BOOLEANS.items():
        for read in reads:
            with pytest.raises(TypeError, match=r"pass numpy\.flatnonzero\(mask\)"):
                pytest.fail(f"{name}: {read(booleans())}")


def test_one_number_instead_of_several_is_told_to_be_a_list(records: Records) -> None:
    reads: list[Callable[[Any], object]] = [
        records.read_packed,
        records.__getitems__,
        lambda key: records.read_into(bytearray(100), key),
    ]
    for read in reads:
        for number in (0, np.int64(0)):
            with pytest.raises(TypeError, match=r"several record numbers are needed, not one; pass a list: \[number\]"):
                read(number)
        with pytest.raises(TypeError, match="lists and arrays of integers, not NoneType"):
            read(None)


KINDS: list[Callable[[list[int]], Any]] = [list, tuple, iter, np.array, lambda them: (i for i in them)]


def test_many_numbers_give_a_list_in_the_order_asked_for(stored: Stored) -> None:
    for kind in KINDS:
        with turn(kind), stored.opened() as records:
            found = records[kind(INDICES)]
            assert type(found) is list
            assert found == at(INDICES)


DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "l", "L", "q", "Q", "O"]


def test_arrays_of_every_integer_type_are_indices(records: Records) -> None:
    for dtype in DTYPES:
        with turn(dtype):
            indices = [i % N for i in INDICES]
            as_array: Any = np.array(indices, dtype)
            assert records[as_array] == at(indices)


def test_strided_reversed_broadcast_and_read_only_arrays_are_indices(records: Records) -> None:
    plain: Any = np.arange(N)
    every_other: Any = np.arange(2 * N).reshape(N, 2)[:10, 0]
    same: Any = np.broadcast_to(np.int64(4), (3,))
    assert records[plain[1::3]] == list(RECORDS[1::3])
    assert records[plain[::-1]] == list(RECORDS[::-1])
    assert records[every_other] == list(RECORDS[0:20:2])
    assert records[same] == [RECORDS[4]] * 3
    plain.flags.writeable = False
    assert records[plain] == list(RECORDS)


def test_ranges_are_indices(records: Records) -> None:
    for indices in (range(N), range(3, 20, 4), range(N - 1, -1, -1), range(-1, -N - 1, -7), range(-3, 2)):
        assert records[indices] == at(list(indices))


NOTHING: list[Any] = [[], (), range(0), range(5, 5), np.array([], np.int64), array.array("i"), iter([])]


def test_no_numbers_give_no_records(records: Records) -> None:
    for nothing in NOTHING:
        with turn(nothing):
            assert records[nothing] == []


def test_more_numbers_than_one_read_plans_for_are_all_read(records: Records) -> None:
    indices = [(i * 7) % N for i in range(9001)]
    assert records[indices] == at(indices)
    as_array: Any = np.array(indices)
    assert records[as_array] == at(indices)


def test_the_names_that_frameworks_call_read_lists(records: Records) -> None:
    assert records.__getitems__(INDICES) == at(INDICES)
    assert records._getitems(INDICES) == at(INDICES)
    assert records.__getitems__(np.array(INDICES)) == at(INDICES)
    assert records.__getitems__([]) == []
    with pytest.raises(IndexError):
        records.__getitems__([N])


@given(indices=st.lists(st.integers(-N, N - 1), max_size=60))
@settings(max_examples=40, deadline=None)
def test_any_list_of_numbers_reads_what_a_list_has_there(stored: Stored, indices: list[int]) -> None:
    with stored.opened() as records:
        assert records[indices] == at(indices)
        as_array: Any = np.array(indices, np.int64)
        assert records[as_array] == at(indices)
