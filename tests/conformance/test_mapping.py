"""`records.map(function)`: lazy, and a sequence in every way that records are."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from anyrecord import MappedRecords, Records
from turns import turn

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


READS: dict[str, Callable[[MappedRecords[Any], int], object]] = {
    "by number": lambda mapped, at: mapped[at],
    "from the end": lambda mapped, at: mapped[at - len(mapped)],
    "by a list": lambda mapped, at: mapped[[0, at, 1]],
    "by a tuple": lambda mapped, at: mapped[(0, at)],
    "by a generator": lambda mapped, at: mapped[(i for i in (0, 1, at))],
    "by an array": lambda mapped, at: mapped[np.array([1, at])],
    "by a range": lambda mapped, at: mapped[range(len(mapped))],
    "as PyTorch does": lambda mapped, at: mapped.__getitems__([0, at]),
    "as Grain does": lambda mapped, at: mapped._getitems(iter([at])),
    "into a list": lambda mapped, at: list(mapped),
    "backwards": lambda mapped, at: list(reversed(mapped)),
    "in batches": lambda mapped, at: list(mapped.batches(5)),
    "all in one batch": lambda mapped, at: list(mapped.batches(10**6)),
    "resumed": lambda mapped, at: list(mapped.resume(iter(mapped).state_dict())),
    "by contents": lambda mapped, at: object() in mapped,
    "counted": lambda mapped, at: mapped.count(object()),
    "looked for": lambda mapped, at: mapped.index(object()),
    "through a chain": lambda mapped, at: list(mapped.map(str)),
}


class OwnError(Exception):
    pass


def refuses(refused: bytes, error: Exception) -> Callable[[bytes], int]:
    def function(record: bytes) -> int:
        if record == refused:
            raise error
        return len(record)

    return function


def test_an_error_in_the_function_says_which_record_it_was(stored: Stored, records: Records) -> None:
    at = 20
    file, number = stored.place(at)
    of_file = f"in the function on record {number} of {file}"
    views = [(records, at), (records[4:], at - 4), (records[::-1], N - 1 - at), (records + records[:1], at)]
    for name, read in READS.items():
        for view, position in views:
            error = OwnError("mine")
            with pytest.raises(OwnError, match=r"^mine") as caught:
                read(view.map(refuses(RECORDS[at], error)), position)
            assert caught.value is error
            expected = of_file if position == number else f"{of_file}, at position {position} of the view"
            assert error.__notes__ == [expected], name


def test_a_stop_iteration_of_the_function_is_an_error_and_no_end(stored: Stored, records: Records) -> None:
    file, number = stored.place(20)
    for name, read in READS.items():
        stop = StopIteration("mine")
        with pytest.raises(RuntimeError, match="StopIteration") as caught:
            read(records.map(refuses(RECORDS[20], stop)), 20)
        assert caught.value.__cause__ is stop, name
        assert caught.value.__notes__[0].startswith(f"in the function on record {number} of {file}")


def test_an_index_error_of_the_function_is_no_end_either(records: Records) -> None:
    mapped = records.map(refuses(RECORDS[20], IndexError("mine")))
    with pytest.raises(IndexError, match="mine"):
        mapped.index(object())


def test_the_note_is_there_once_however_often_the_error_comes(records: Records) -> None:
    error = OwnError()
    mapped = records.map(refuses(RECORDS[1], error))
    for _ in range(3):
        with pytest.raises(OwnError):
            mapped[1]
    assert len(error.__notes__) == 1


def test_what_ends_a_program_has_no_note(records: Records) -> None:
    def interrupted(record: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        list(records.map(interrupted))
    assert not hasattr(caught.value, "__notes__")


def test_index_errors_stay_index_errors(records: Records) -> None:
    with pytest.raises(IndexError):
        records.map(len)[N]
    with pytest.raises(TypeError):
        records.map(len)["1"]  # type: ignore[index]


NO_FUNCTIONS: list[Any] = [None, 3, b"len", "len"]


def test_map_needs_a_function(records: Records) -> None:
    for no_function in NO_FUNCTIONS:
        with turn(no_function):
            with pytest.raises(TypeError, match=type(no_function).__name__):
                records.map(no_function)
            with pytest.raises(TypeError, match=type(no_function).__name__):
                records.map(len).map(no_function)


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
