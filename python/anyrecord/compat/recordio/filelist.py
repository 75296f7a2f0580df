"""`FileList`: many files as one sequence of records."""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Self, SupportsIndex

import anyrecord
from anyrecord.compat.recordio.source import StrPath, identity_of, path_text, records_of, shown
from anyrecord.compat.runtime_errors import runtime_error

__all__ = ["FileList"]


class FileList:
    """A list of files, in the given order. It can be empty, contain empty files, or name a file twice.

    >>> from anyrecord.compat.recordio import FileList, Writer
    >>> for path, count in (("a.recordio", 2), ("b.recordio", 0), ("c.recordio", 3)):
    ...     with Writer(path) as writer:
    ...         for number in range(count):
    ...             writer.write(b"%d" % number)
    >>> files = FileList(["a.recordio", "b.recordio", "c.recordio"])
    >>> files.total_records(), [files.locate(i) for i in (0, 2, 4, 5)]
    (5, [(0, 0, 0), (2, 0, 0), (2, 0, 2), (-1, -1, -1)])

    The constructor reads the headers of all files, in parallel. It raises an error if one of them is damaged.
    """

    def __init__(self, paths: Iterable[StrPath]) -> None:
        if isinstance(paths, str | bytes):
            raise TypeError(f"FileList takes a list of paths, not one {type(paths).__name__}")
        names = [path_text(path) for path in paths]
        self._records: anyrecord.Records | None = None
        self._ends: list[int] = []
        self._is_closed = False
        if not names:
            return
        for name in names:
            try:
                identity_of(name)
            except (OSError, ValueError) as error:
                raise runtime_error(f"open {shown(name)}: {getattr(error, 'strerror', error)}", error) from error
        try:
            distinct = list(dict.fromkeys(names))
            records = records_of(distinct)
            counts = _counts(records, distinct)
            self._records = records if distinct == names else records_of(names)
        except (anyrecord.RecordError, OSError) as error:
            raise runtime_error("Failed to load index", error) from error
        self._ends = list(accumulate(counts[name] for name in names))

    def total_records(self) -> int:
        """How many records all files have."""
        self._opened()
        return self._ends[-1] if self._ends else 0

    def locate(self, index: SupportsIndex) -> tuple[int, int, int]:
        """Returns the file of a record, its chunk and its row, or `(-1, -1, -1)` if there is no such record."""
        records, number = self._opened(), operator.index(index)
        if records is None or not 0 <= number < self._ends[-1]:
            return -1, -1, -1
        place = records.locate(number)
        return bisect_right(self._ends, number), place.chunk, place.row

    def close(self) -> None:
        """Closes the list. Scanners of the list continue to work. A second call does nothing."""
        self._is_closed, self._records = True, None

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _opened(self) -> anyrecord.Records | None:
        """The records. None if the list has no files. Raises if the list is closed."""
        if self._is_closed:
            raise runtime_error("", anyrecord.ClosedError("this list of files is closed; make a new one"))
        return self._records


def _counts(records: anyrecord.Records, paths: list[str]) -> dict[str, int]:
    """How many records each of the distinct paths has. A binary search finds where each file begins."""
    numbers = {path: number for number, path in enumerate(records.paths)}
    begins = [
        bisect_left(range(len(records)), number, key=lambda index: numbers[records.locate(index).path])
        for number in range(len(paths))
    ]
    ends = pairwise([*begins, len(records)])
    return {path: end - begin for path, (begin, end) in zip(paths, ends, strict=True)}
