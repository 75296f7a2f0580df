"""`ArrayRecordWriter` writes one file, `ArrayRecordReader` reads one file.

>>> from anyrecord.compat.array_record.python import array_record_module
>>> writer = array_record_module.ArrayRecordWriter("doc.array_record", "group_size:1")
>>> for i in range(10):
...     writer.write(b"record %d" % i)
>>> writer.close()
>>> reader = array_record_module.ArrayRecordReader("doc.array_record")
>>> reader.num_records(), reader.read(), reader.read([7, 2]), reader.read(-2, -1)
(10, b'record 0', [b'record 7', b'record 2'], [b'record 8'])

A constructor raises for wrong arguments and wrong options, never for an error of the file. After such an error `ok()`
is False, and the next call of another method raises RuntimeError.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Mapping
from typing import Any, NoReturn, SupportsIndex, overload

import anyrecord
from anyrecord.compat._types import exact
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
    """Writes one file. The file appears under its name when `close` has finished it."""

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
            raise TypeError(f"a record must be bytes, not {type(record).__name__}")
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
        """Finishes the file and publishes it. A second call does nothing, or raises again if writing failed."""
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
        """Discards the file, so nothing is published. Every later call raises the same error."""
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

    Reads with arguments do not change the position of `read()`. Many threads can use one reader at the same time.
    """

    __slots__ = ("__weakref__", "_cursor", "_error", "_is_open", "_options", "_path", "_reading", "_records")

    def __init__(self, path: str | bytes, options: str | bytes = "", **kwargs: Any) -> None:
        self._reading = reader_options(_text("options", options))
        buffer_size = kwargs.get("file_reader_buffer_size", 0)
        if not isinstance(buffer_size, SupportsIndex):
            raise RuntimeError(f"file_reader_buffer_size must be an int, not {type(buffer_size).__name__}")
        self._path = _text("path", path)
        self._is_open = True
        self._error: str | None = None
        self._records: anyrecord.Records | None = None
        self._cursor: Any = iter(())  # an iterator that can seek, if the file is open
        self._options: tuple[str | None] | None = None  # None: not read from the file yet
        try:
            self._records = open_one(self._path, self._reading)
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
        """How many records there are. 0 if the file could not be opened."""
        records = self._records
        return 0 if records is None else len(records)

    def record_index(self) -> int:
        """The number of the record that `read()` returns next."""
        return self.num_records() - operator.length_hint(self._cursor)

    def writer_options_string(self) -> str | None:
        """The options that the writer stored in the file. None if there are none."""
        if self._error is not None:
            return None
        if self._options is None:
            with failures():
                about = anyrecord.info([exact(self._path)], format="array_record", storage=self._reading.storage)
                self._options = (about.options,)
        return self._options[0]

    def seek(self, index: SupportsIndex, /) -> None:
        """Makes `read()` continue at this record. A number out of range means the end of the file."""
        # Another thread may close the reader at any moment. It drops the cursor last, so the cursor is taken first.
        cursor = self._cursor
        if self._records is None:
            raise self._unusable()
        try:
            cursor._seek(index)
        except OverflowError:
            raise TypeError(f"the record number {operator.index(index)} does not fit into 64 bits") from None

    @overload
    def read(self) -> bytes: ...
    @overload
    def read(self, indices: Collection[SupportsIndex], /) -> list[bytes]: ...
    @overload
    def read(self, begin: SupportsIndex, end: SupportsIndex, /) -> list[bytes]: ...
    def read(self, *args: Any) -> bytes | list[bytes]:
        """Returns the next record, the records with the numbers in a list, or the records from `begin` up to `end`."""
        try:
            if not args:
                record: bytes = next(self._cursor)
                return record
            if len(args) == 1 and (opened := self._records) is not None:
                # None if these are not ints in range, but something to convert or to refuse.
                records = opened._read_plain(args[0])
                if records is not None:
                    return records
        except StopIteration:
            raise IndexError(f"Out of range of num_records: {len(self._open())}") from None
        except FAILURES as error:
            raise failure(error) from error
        if len(args) == 1:
            return self._batch(args[0])
        if len(args) == 2:
            return self._range(*args)
        raise TypeError(
            f"read() takes no argument, a list of record numbers, or begin and end, not {len(args)} arguments"
        )

    def read_all(self) -> list[bytes]:
        """All records."""
        records = self._open()
        with failures():
            return list(records)

    def close(self) -> None:
        """Closes the file. Raises RuntimeError if the file could not be opened. Else a second call does nothing."""
        self._is_open = False
        if self._error is not None:
            raise RuntimeError(self._error)
        # The references are dropped and the records are not closed, because another thread may still read from them.
        self._records = None
        self._cursor = iter(())

    def _open(self) -> anyrecord.Records:
        if (records := self._records) is None:
            raise self._unusable()
        return records

    def _unusable(self) -> RuntimeError:
        return RuntimeError(self._error or _CLOSED)

    def _range(self, begin: SupportsIndex, end: SupportsIndex) -> list[bytes]:
        first, last = operator.index(begin), operator.index(end)
        if (records := self._records) is None:
            raise RangeError(self._error or _CLOSED)
        count = len(records)
        first, last = (first + count if first < 0 else first), (last + count if last < 0 else last)
        if not 0 <= first < last <= count:
            raise IndexError(f"[{begin}, {end}) is out of range of [0, {count})")
        with failures():
            return records.__getitems__(range(first, last))

    def _batch(self, indices: Any) -> list[bytes]:
        records = self._open()
        positions = _record_numbers(indices)
        beyond = next((position for position in positions if position >= len(records)), None)
        if beyond is not None:
            raise BatchIndexError(f"index {beyond} out of bound {len(records)}")
        with failures():
            return records.__getitems__(positions)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")


def _record_numbers(indices: Any) -> list[int]:
    """A sequence of record numbers as a list of int, or TypeError."""
    kind = type(indices)
    is_sequence = hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    if not is_sequence or isinstance(indices, str | bytes | Mapping):
        raise TypeError(f"pass record numbers as a list, a tuple, a range or an array, not {kind.__name__}")
    positions = [_record_number(index) for index in (indices.tolist() if hasattr(indices, "dtype") else indices)]
    wrong = next((position for position in positions if not 0 <= position < 2**64), None)
    if wrong is not None:
        raise TypeError(f"the record number {wrong} is not valid: it must be from 0 to 2**64 - 1")
    return positions


def _record_number(index: Any) -> int:
    if getattr(getattr(index, "dtype", None), "kind", "") == "b":
        return int(index)  # numpy's bool has no `__index__`
    return operator.index(index)
