"""Reads of records into memory that is used again, which grows when a batch does not fit."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch

from anyrecord._records import Records
from anyrecord.errors import RecordError

__all__ = ["Memory", "read_into", "rounded"]


class Memory(Protocol):
    """Memory that records are read into."""

    buffer: Any
    """A writable buffer of bytes."""


M = TypeVar("M", bound=Memory)


def read_into(
    records: Records, positions: Sequence[int], memory: M, larger: Callable[[int], M]
) -> tuple[M, array[int]]:
    """Reads records into the memory, or into a larger one if they do not fit. Returns it and where each one begins."""
    if not records._leaves_out:
        try:
            return memory, records.read_into(memory.buffer, positions)
        except RecordError:
            raise
        except ValueError:
            pass  # too small; how much is needed is known when the records have been read
    packed = records.read_packed(positions)
    size = packed.data.nbytes
    if size > len(memory.buffer):
        memory = larger(rounded(size))
    if size:
        # PyTorch copies without holding the interpreter's lock.
        torch.frombuffer(memory.buffer, dtype=torch.uint8, count=size).copy_(
            torch.frombuffer(packed.data, dtype=torch.uint8)
        )
    return memory, packed.offsets


def rounded(size: int) -> int:
    """A size with room for batches that are a little larger, in whole pages."""
    return (size + size // 8 + 4095) // 4096 * 4096
