"""`buffer`: a record where it lies, or a copy of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from anyrecord import ClosedError, Records
from turns import turn

from conformance.storages import RECORDS, Stored

N = len(RECORDS)


def test_every_record_shows_its_bytes(records: Records) -> None:
    assert [bytes(records.buffer(i)) for i in range(N)] == list(RECORDS)
    assert bytes(records.buffer(-1)) == RECORDS[-1]
    assert bytes(records.buffer(np.int32(3))) == RECORDS[3]
    assert [bytes(records[5:].shuffle(seed=1).buffer(i)) for i in range(9)] == list(records[5:].shuffle(seed=1)[:9])


def test_it_is_read_only_bytes_that_numpy_takes_as_they_are(records: Records) -> None:
    view = records.buffer(4)
    assert isinstance(view, memoryview)
    assert (view.readonly, view.format, view.ndim, view.contiguous) == (True, "B", 1, True)
    array = np.frombuffer(view, np.uint8)
    assert array.tobytes() == RECORDS[4]
    with pytest.raises(TypeError):
        view[0] = 1


OUTSIDE = [N, -N - 1, 2**70]


def test_there_is_none_of_a_record_that_there_is_not(records: Records) -> None:
    for index in OUTSIDE:
        with turn(index), pytest.raises(IndexError, match="out of range"):
            records.buffer(index)


NO_NUMBER: list[Any] = ["1", 1.0, [1], None]


def test_it_takes_one_number(records: Records) -> None:
    for index in NO_NUMBER:
        with turn(index), pytest.raises(TypeError, match="one record number"):
            records.buffer(index)


def test_it_outlives_what_it_came_from(stored: Stored) -> None:
    with stored.opened() as records:
        views = [records.buffer(i) for i in range(N)]
    with pytest.raises(ClosedError):
        records.buffer(0)
    del records
    assert [bytes(view) for view in views] == list(RECORDS)
