"""`ArrayRecordWriter` and `ArrayRecordReader`: one file written, one file read.

>>> from anyrecord.compat.array_record.python import array_record_module
>>> writer = array_record_module.ArrayRecordWriter("doc.array_record", "group_size:1")
>>> for i in range(10):
...     writer.write(b"record %d" % i)
>>> writer.close()
>>> reader = array_record_module.ArrayRecordReader("doc.array_record")
>>> reader.num_records(), reader.read(), reader.read([7, 2]), reader.read(-2, -1)
(10, b'record 0', [b'record 7', b'record 2'], [b'record 8'])

A constructor raises for wrong arguments and wrong options, never for a file: that is seen by `ok()`, and raised as
RuntimeError by whatever is called next.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NoReturn, SupportsIndex, overload

import anyrecord
from anyrecord.compat.array_record._failures import FAILURES, BatchIndexError, RangeError, failure, failures
from anyrecord.compat.array_record._files import open_one
from anyrecord.compat.array_record._options import reader_options, writer_options

__all__ = ["ArrayRecordReader", "ArrayRecordWriter"]

_CLOSED = "Object closed"


def _text(name: str, value: object) -> str:
    if isinstance(value, bytes):
        return os.fsdecode(value)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return value


class ArrayRecordWriter:
    """Writes one file, which appears under its name when `close` has finished it."""

    __slots__ = ("__weakref__", "_error", "_is_open", "_writer")

    def __init__(self, path: str | bytes, options: str | bytes = "", **_kwargs: Any) -> None:
        keywords = writer_options(_text("options", options))
        self._is_open = True
        self._error: str | None = None
        self._writer: anyrecord.Writer | None = None
        target = _text("path", path)
        try:
            self._writer = anyrecord.create(target, format="array_record", overwrite=True, **keywords)
        except (*FAILURES, ValueError) as error:
            self._error = str(failure(error))

    def write(self, record: bytes, /) -> None:
        """Adds a record."""
        if not isinstance(record, bytes):
            raise TypeError(f"a record is bytes, not {type(record).__name__}")
        if self._writer is None:
            raise RuntimeError(self._error or _CLOSED)
        try:
            self._writer.write(record)
        except FAILURES as error:
            raise self._fail(error) from error

    def ok(self) -> bool:
        """Whether records can be written."""
        return self._writer is not None

    def is_open(self) -> bool:
        """Whether it was not closed yet, be it of use or not."""
        return self._is_open

    def close(self) -> None:
        """Finishes the file and makes it appear. A second call does nothing, unless the file has failed."""
        self._is_open = False
        if self._error is not None:
            raise RuntimeError(self._error)
        if self._writer is None:
            return
        try:
            self._writer.close()
        except FAILURES as error:
            raise self._fail(error) from error
        self._writer = None

    def _fail(self, error: Exception) -> RuntimeError:
        """Gives up: nothing is published, and every later call says why."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.discard()
        found = failure(error)
        self._error = str(found)
        return found

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")


class ArrayRecordReader:
    """Reads one file: in order with `read()`, or anywhere with `read([...])` and `read(begin, end)`.

    The reads with arguments leave the position of `read()` alone, and many threads may use one reader at once.
    """

    __slots__ = ("__weakref__", "_cursor", "_error", "_is_open", "_options", "_path", "_records")

    def __init__(self, path: str | bytes, options: str | bytes = "", **kwargs: Any) -> None:
        table = reader_options(_text("options", options)).table
        buffer_size = kwargs.get("file_reader_buffer_size", 0)
        if not isinstance(buffer_size, SupportsIndex):
            raise RuntimeError(f"file_reader_buffer_size must be an int, not {type(buffer_size).__name__}")
        self._path = _text("path", path)
        self._is_open = True
        self._error: str | None = None
        self._records: anyrecord.Records | None = None
        self._cursor: Iterator[bytes] = iter(())
        self._options: tuple[str | None] | None = None  # not asked for yet
        try:
            self._records = open_one(self._path, table)
            self._cursor = iter(self._records)
        except (*FAILURES, ValueError) as error:
            self._error = str(failure(error))

    def ok(self) -> bool:
        """Whether records can be read."""
        return self._records is not None

    def is_open(self) -> bool:
        """Whether it was not closed yet, be it of use or not."""
        return self._is_open

    def num_records(self) -> int:
        """How many records there are; 0 where the file could not be opened."""
        return 0 if self._records is None else len(self._records)

    def record_index(self) -> int:
        """The number of the record that `read()` gives next."""
        return self.num_records() - operator.length_hint(self._cursor)

    def writer_options_string(self) -> str | None:
        """The options that the writer left in the file, if it did."""
        if self._error is not None:
            return None
        if self._options is None:
            with failures():
                self._options = (anyrecord.info(self._path, format="array_record").options,)
        return self._options[0]

    def seek(self, index: SupportsIndex, /) -> None:
        """Makes `read()` go on at a record. Outside of the file is the end of it."""
        records = self._open()
        position = operator.index(index)
        if not -(2**63) <= position < 2**63:
            raise TypeError(f"a record number has 64 bits, which {position} has not")
        self._cursor = iter(records[position if position >= 0 else len(records) :])

    @overload
    def read(self) -> bytes: ...
    @overload
    def read(self, indices: Collection[SupportsIndex], /) -> list[bytes]: ...
    @overload
    def read(self, begin: SupportsIndex, end: SupportsIndex, /) -> list[bytes]: ...
    def read(self, *args: Any) -> bytes | list[bytes]:
        """The next record; or those with the numbers in a list; or those from `begin` up to `end`."""
        if not args:
            return self._next()
        if len(args) == 1:
            return self._batch(args[0])
        if len(args) == 2:
            return self._range(*args)
        raise TypeError(f"read() takes nothing, a list of record numbers, or begin and end, not {len(args)} arguments")

    def read_all(self) -> list[bytes]:
        """All records."""
        records = self._open()
        with failures():
            return list(records)

    def close(self) -> None:
        """Gives the file back. A second call does nothing, unless the file could not be opened."""
        self._is_open = False
        if self._error is not None:
            raise RuntimeError(self._error)
        # Dropped, not closed: another thread may be in the middle of a read.
        self._records, self._cursor = None, iter(())

    def _open(self) -> anyrecord.Records:
        if self._records is None:
            raise RuntimeError(self._error or _CLOSED)
        return self._records

    def _next(self) -> bytes:
        try:
            return next(self._cursor)
        except StopIteration:
            raise IndexError(f"Out of range of num_records: {len(self._open())}") from None
        except FAILURES as error:
            raise failure(error) from error

    def _range(self, begin: SupportsIndex, end: SupportsIndex) -> list[bytes]:
        first, last = operator.index(begin), operator.index(end)
        if self._records is None:
            raise RangeError(self._error or _CLOSED)
        count = len(self._records)
        first, last = (first + count if first < 0 else first), (last + count if last < 0 else last)
        if not 0 <= first < last <= count:
            raise IndexError(f"[{begin}, {end}) is out of range of [0, {count})")
        with failures():
            return self._records.__getitems__(range(first, last))

    def _batch(self, indices: Any) -> list[bytes]:
        records = self._open()
        try:
            if type(indices) in _QUICK and min(indices, default=0) >= 0:
                return records.__getitems__(indices)
        except FAILURES as error:
            raise failure(error) from error
        except (IndexError, TypeError):
            pass  # found again below, where it is told exactly
        positions = _record_numbers(indices)
        beyond = next((position for position in positions if position >= len(records)), None)
        if beyond is not None:
            raise BatchIndexError(f"index {beyond} out of bound {len(records)}")
        with failures():
            return records.__getitems__(positions)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")


_QUICK = (list, tuple, range)


def _record_numbers(indices: Any) -> list[int]:
    """A sequence of record numbers as a list of int, or TypeError."""
    kind = type(indices)
    is_sequence = hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    if not is_sequence or isinstance(indices, str | bytes | Mapping):
        raise TypeError(f"record numbers are given as a list, a tuple, a range or an array, not {kind.__name__}")
    positions = [_record_number(index) for index in (indices.tolist() if hasattr(indices, "dtype") else indices)]
    wrong = next((position for position in positions if not 0 <= position < 2**64), None)
    if wrong is not None:
        raise TypeError(f"a record number is from 0 to 2**64 - 1, which {wrong} is not")
    return positions


def _record_number(index: Any) -> int:
    if getattr(getattr(index, "dtype", None), "kind", "") == "b":
        return int(index)  # numpy's bool, which is no index
    return operator.index(index)
