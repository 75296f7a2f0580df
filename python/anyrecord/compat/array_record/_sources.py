"""The opened files of a data source: one sequence if all files can be opened, else one `Records` for each file."""

from __future__ import annotations

import bisect
import itertools
import operator
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol, SupportsIndex

import anyrecord
from anyrecord.compat._types import shown
from anyrecord.compat.array_record._failures import FAILURES
from anyrecord.compat.array_record._files import Instruction, open_all, open_one
from anyrecord.compat.array_record._options import ReaderOptions

__all__ = ["Readable", "open_source", "opening"]


class Readable(Protocol):
    """What a data source reads from. It checks its keys."""

    def __getitem__(self, key: SupportsIndex, /) -> bytes: ...
    def __getitems__(self, keys: Collection[SupportsIndex], /) -> list[bytes]: ...
    def __iter__(self) -> Iterator[bytes]: ...


_lock = threading.Lock()


def opening() -> threading.Lock:
    """Returns the lock that lets only one thread open the files."""
    return _lock


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # a thread of the parent process may hold the old lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def open_source(instructions: Sequence[Instruction], options: ReaderOptions, num_records: int) -> Readable:
    """Opens the files now.

    If a file is missing, damaged or shorter than its instruction says, the other files must still be readable. Then
    each file is opened separately when it is first read, and raises its own error.
    """
    wanted = [instruction for instruction in instructions if instruction.start != instruction.end]
    whole = all(instruction.end is None for instruction in instructions)
    try:
        records = open_all(wanted, options)
    except (*FAILURES, ValueError):
        if whole:
            raise
        return SeparateFiles(wanted, options)
    if len(records) != num_records:
        raise RuntimeError(
            f"the files had {num_records} records when this source was created and have {len(records)} now; "
            "create the source again"
        )
    return records


class SeparateFiles:
    """Files that are opened one by one, each when it is first read."""

    def __init__(self, instructions: Sequence[Instruction], options: ReaderOptions) -> None:
        self._instructions = instructions
        self._options = options
        self._files: list[anyrecord.Records | None] = [None] * len(instructions)
        self._ends = list(itertools.accumulate((end or 0) - start for _, start, end in instructions))

    def _place(self, key: SupportsIndex) -> tuple[int, int]:
        """The number of the file, and the number of the record in that file."""
        position = operator.index(key)
        number = bisect.bisect_right(self._ends, position)
        if number == len(self._ends):
            raise IndexError(position)
        before = self._ends[number - 1] if number else 0
        return number, position - before + self._instructions[number].start

    def _file(self, number: int) -> anyrecord.Records:
        records = self._files[number]
        if records is None:
            records = self._files[number] = open_one(self._instructions[number].filename, self._options)
        return records

    def __getitem__(self, key: SupportsIndex, /) -> bytes:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Collection[SupportsIndex], /) -> list[bytes]:
        places: dict[int, list[tuple[int, int]]] = {}
        for rank, key in enumerate(keys):
            number, position = self._place(key)
            places.setdefault(number, []).append((rank, position))
        found = [b""] * len(keys)
        for number, wanted in places.items():
            records = self._file(number)
            positions = [position for _, position in wanted]
            if max(positions) >= len(records):
                name = shown(self._instructions[number].filename)
                raise RuntimeError(f"index {max(positions)} out of bound {len(records)} of {name}")
            for (rank, _), record in zip(wanted, records.__getitems__(positions), strict=True):
                found[rank] = record
        return found

    def __iter__(self) -> Iterator[bytes]:
        return (self[key] for key in range(self._ends[-1]))
