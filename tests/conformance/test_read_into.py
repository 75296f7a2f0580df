"""`read_into`: records into a buffer of the caller's."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from anyrecord import Records
from turns import turn

from conformance.storages import RECORDS, Stored

N = len(RECORDS)
INDICES = [5, 0, 16, 5, N - 1, 1, -2]
EXPECTED = [RECORDS[i] for i in INDICES]
NEEDED = sum(map(len, EXPECTED))

BUFFERS: dict[str, Callable[[int], Any]] = {
    "bytearray": bytearray,
    "numpy": lambda size: np.zeros(size, np.uint8),
    "numpy of two dimensions": lambda size: np.zeros((size, 1), np.uint8),
    "memoryview": lambda size: memoryview(bytearray(size)),
    "part of a memoryview": lambda size: memoryview(bytearray(size + 10))[10:],
    "array": lambda size: array.array("B", bytes(size)),
}


def test_records_lie_one_after_the_other_in_the_order_asked_for(stored: Stored) -> None:
    for name, buffer_of in BUFFERS.items():
        with turn(name), stored.opened() as records:
            buffer = buffer_of(NEEDED)
            offsets = records.read_into(buffer, INDICES)
            assert isinstance(offsets, array.array)
            assert len(offsets) == len(INDICES) + 1
            assert (offsets[0], offsets[-1]) == (0, NEEDED)
            found = memoryview(buffer).tobytes()
            assert [found[offsets[k] : offsets[k + 1]] for k in range(len(INDICES))] == EXPECTED


def test_what_is_behind_the_records_is_left_alone(records: Records) -> None:
    buffer = bytearray(b"\xaa" * (NEEDED + 100))
    records.read_into(buffer, INDICES)
    assert buffer == b"".join(EXPECTED) + b"\xaa" * 100


def test_every_record_at_once_and_none(records: Records) -> None:
    buffer = bytearray(sum(map(len, RECORDS)))
    records.read_into(buffer, range(N))
    assert buffer == b"".join(RECORDS)
    assert list(records.read_into(bytearray(), [])) == [0]
    assert list(records.read_into(bytearray(), [0, 0])) == [0, 0, 0], "an empty record, twice"


def test_a_slice_reads_its_own_records(records: Records) -> None:
    buffer = bytearray(1000)
    offsets = records[::-1].read_into(buffer, np.array([1]))
    assert buffer[: offsets[1]] == RECORDS[-2]


TOO_SMALL = [0, 1, NEEDED - 1]


def test_a_buffer_that_is_too_small_is_told_what_is_needed(records: Records) -> None:
    for size in TOO_SMALL:
        with turn(size):
            with pytest.raises(ValueError) as caught:
                records.read_into(bytearray(size), INDICES)
            assert str(NEEDED) in str(caught.value)
            assert str(size) in str(caught.value)


def _frozen_array() -> Any:
    frozen = np.zeros(NEEDED, np.uint8)
    frozen.flags.writeable = False
    return frozen


READ_ONLY: list[Any] = [bytes(NEEDED), memoryview(bytes(NEEDED)), _frozen_array()]


def test_a_read_only_buffer_is_refused_and_keeps_its_bytes(records: Records) -> None:
    for out in READ_ONLY:
        with turn(type(out)):
            with pytest.raises(TypeError, match="read-only"):
                records.read_into(out, INDICES)
            assert bytes(out) == bytes(NEEDED)


NO_BUFFERS: list[Any] = ["text", None, 5, [0] * NEEDED, np.zeros(NEEDED)]


def test_what_is_no_buffer_of_bytes_is_a_type_error(records: Records) -> None:
    for out in NO_BUFFERS:
        with turn(type(out)), pytest.raises(TypeError, match="bytearray"):
            records.read_into(out, INDICES)


def test_a_buffer_with_gaps_is_refused(records: Records) -> None:
    with pytest.raises((TypeError, BufferError), match="contiguous"):
        records.read_into(np.zeros(2 * NEEDED, np.uint8)[::2], INDICES)


def test_numbers_are_checked_before_anything_is_written(records: Records) -> None:
    buffer = bytearray(b"\xaa" * NEEDED)
    with pytest.raises(IndexError):
        records.read_into(buffer, [0, 1, N])
    with pytest.raises(TypeError):
        records.read_into(buffer, ["0"])  # type: ignore[list-item]
    assert buffer == b"\xaa" * NEEDED


def test_the_buffer_is_free_again_afterwards(records: Records) -> None:
    buffer = bytearray(NEEDED)
    records.read_into(buffer, INDICES)
    buffer.clear()  # a buffer that is still lent out cannot be resized
    assert not buffer
