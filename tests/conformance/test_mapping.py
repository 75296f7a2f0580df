"""`records.map(function)`: lazy, and a sequence in every way that records are."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from anyrecord import MappedRecords, Records

from conformance.storages import RECORDS, Stored

N = len(RECORDS)
SIZES = [len(record) for record in RECORDS]


def half(size: int) -> float:
    """At the top of a module, so that it can be pickled."""
    return size / 2


def test_a_mapped_record_is_the_functions_result(records: Records) -> None:
    sizes = records.map(len)
    assert isinstance(sizes, MappedRecords)
    assert len(sizes) == N
    assert list(sizes) == SIZES
    assert sizes[7] == SIZES[7]
    assert sizes[-1] == SIZES[-1]
    assert sizes[[3, 0, 3]] == [SIZES[3], SIZES[0], SIZES[3]]
    assert sizes[np.array([3, 0])] == [SIZES[3], SIZES[0]]
    assert sizes.__getitems__([1, 2]) == sizes._getitems([1, 2]) == SIZES[1:3]
    assert list(reversed(sizes)) == SIZES[::-1]
    assert sizes.index(70_000) == SIZES.index(70_000)
    assert sizes.paths == records.paths


def test_a_function_is_called_when_its_record_is_read_and_for_no_other(records: Records) -> None:
    seen: list[bytes] = []
    mapped = records.map(seen.append)
    part = mapped[5:9]
    assert seen == []
    mapped[2]
    part[0]
    assert seen == [RECORDS[2], RECORDS[5]]


def test_a_function_may_return_records_lists_and_slices(records: Records) -> None:
    assert records.map(lambda record: [record])[1] == [RECORDS[1]]
    assert records.map(lambda record: records)[1] is records
    assert records.map(bytes)[[1, 2]] == list(RECORDS[1:3])


def test_functions_chain(records: Records) -> None:
    halves = records.map(len).map(half).map(str)
    assert halves[4] == str(SIZES[4] / 2)
    assert list(halves) == [str(size / 2) for size in SIZES]


def test_a_slice_of_mapped_records_is_mapped(records: Records) -> None:
    part = records.map(len)[3:20:4]
    assert isinstance(part, MappedRecords)
    assert list(part) == SIZES[3:20:4]
    assert list(records[3:20:4].map(len)) == SIZES[3:20:4]


def test_batches_of_mapped_records_are_mapped(records: Records) -> None:
    assert list(records.map(len).batches(7)) == [SIZES[at : at + 7] for at in range(0, N, 7)]
    assert list(records.map(len).batches(N - 1, drop_last=True)) == [SIZES[: N - 1]]


def test_an_error_in_the_function_comes_out_as_it_is_and_breaks_nothing(records: Records) -> None:
    class OwnError(Exception):
        pass

    def refuse_empty(record: bytes) -> bytes:
        if not record:
            raise OwnError
        return record

    mapped = records.map(refuse_empty)
    for read in (lambda: mapped[0], lambda: mapped[[1, 0]], lambda: next(iter(mapped))):
        with pytest.raises(OwnError):
            read()
    assert mapped[1] == RECORDS[1]


def test_index_errors_stay_index_errors(records: Records) -> None:
    with pytest.raises(IndexError):
        records.map(len)[N]
    with pytest.raises(TypeError):
        records.map(len)["1"]  # type: ignore[index]


@pytest.mark.parametrize("no_function", [None, 3, b"len", "len"])
def test_map_needs_a_function(records: Records, no_function: Any) -> None:
    with pytest.raises(TypeError, match=type(no_function).__name__):
        records.map(no_function)


def test_mapped_records_survive_pickling_where_their_records_do(stored: Stored, records: Records) -> None:
    mapped = records.map(len).map(half)[4:30]
    if not stored.is_of_paths:
        with pytest.raises(TypeError):
            pickle.dumps(mapped)
        return
    again = pickle.loads(pickle.dumps(mapped))
    assert list(again) == [size / 2 for size in SIZES[4:30]]


def test_the_repr_names_the_functions_and_has_no_addresses(records: Records) -> None:
    text = repr(records.map(len).map(half))
    assert text == f"{records!r}.map(len).map(half)"
    assert "0x" not in repr(records.map(lambda record: record))
