"""`Scanner` and `new_scanner`: a range of records, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Self, SupportsIndex

import anyrecord
from anyrecord.compat.recordio.index import Index, load_index
from anyrecord.compat.recordio.source import StrPath, bounds, file_object, path_text, read_error
from anyrecord.compat.runtime_errors import runtime_error

__all__ = ["RangeScanner", "Scanner", "new_scanner"]


class _Range:
    """Records of a range in order, up to an error, which then stays; closed once and for all."""

    _records: Iterator[bytes] | None
    _error: Exception | None = None

    def _begin(self, records: anyrecord.Records, start: SupportsIndex, length: SupportsIndex) -> None:
        self._records = iter(records[bounds(len(records), start, length)])

    def _next(self) -> bytes | None:
        """The next record, or None: at the end, and where there is an error."""
        if self._records is None:
            raise runtime_error("", anyrecord.ClosedError("this scanner is closed; make a new one"))
        try:
            record = next(self._records, None)
        except (anyrecord.RecordError, OSError) as error:
            record, self._error = None, read_error(error)
            self._error.__cause__ = error.with_traceback(None)  # which would refer to the records
        if record is None:
            self._records = iter(())  # nothing comes any more: the file is given back
        return record

    def close(self) -> None:
        """Gives the file back. A second call does nothing; an open file stays open."""
        self._records = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Scanner(_Range):
    """`len` records of a file from `start` on; all up to the end if it is negative.

    >>> from anyrecord.compat.recordio import Scanner, Writer
    >>> with Writer("doc.recordio") as writer:
    ...     for number in range(10):
    ...         writer.write(b"%d" % number)
    >>> with Scanner("doc.recordio", start=2, len=3) as scanner:
    ...     while (record := scanner.record()) is not None:
    ...         print(record)
    b'2'
    b'3'
    b'4'
    >>> list(Scanner("doc.recordio", 8))
    [b'8', b'9']

    It can be used in forked children and from many threads, each of which gets other records.
    """

    def __init__(
        self, path: StrPath, start: SupportsIndex = 0, len: SupportsIndex = -1, index: Index | None = None
    ) -> None:
        name = path_text(path)
        table = Index(name) if index is None else _an_index(index)
        try:
            records = table._records_of_path(name)
        except (OSError, ValueError, anyrecord.RecordError) as error:
            raise runtime_error(f"Failed to create scanner for recordio file: {name}", error) from error
        self._begin(records, start, len)

    def record(self) -> bytes | None:
        """The next record; None at the end. An error is raised, each time, and is never taken for the end."""
        record = self._next()
        if record is None and self._error is not None:
            raise self._error
        return record

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.record, None)


class RangeScanner(_Range):
    """What `new_scanner` returns: `scan()`, then `record()`, and in the end `error()`."""

    _record: bytes | None = None

    def scan(self) -> bool:
        """Goes to the next record. False at the end and at an error, which `error()` tells apart."""
        self._record = self._next()
        return self._record is not None

    def record(self) -> bytes:
        """The record that `scan()` went to."""
        if self._record is None:
            raise RuntimeError("there is no record here: the last scan() was not True; call it before record()")
        return self._record

    def error(self) -> Exception | None:
        """What went wrong; None if nothing did, also at the end."""
        return self._error

    def close(self) -> None:
        """Lets go of the open file, which stays open. A second call does nothing."""
        super().close()
        self._record = None


def new_scanner(
    file: BinaryIO, index: Index | None = None, start: SupportsIndex = 0, length: SupportsIndex = -1
) -> RangeScanner:
    """A scanner of `length` records of an open file from `start` on; of all up to the end if it is negative.

    >>> import io
    >>> from anyrecord.compat.recordio import load_index, new_scanner, new_writer
    >>> file = io.BytesIO()
    >>> writer = new_writer(file)
    >>> [writer.write(record) for record in (b"one", b"two", b"three")]
    [3, 3, 5]
    >>> writer.close()
    >>> scanner = new_scanner(file, load_index(file), 1, 2)
    >>> while scanner.scan():
    ...     print(scanner.record())
    b'two'
    b'three'
    >>> scanner.error() is None
    True

    Scanners of one file may share its index, also where they take turns or run in threads.
    """
    file_object(file, "read")
    table = load_index(file) if index is None else _an_index(index)
    try:
        records = table._records_of_file(file)
    except (OSError, anyrecord.RecordError) as error:
        raise runtime_error("Failed to create scanner", error) from error
    scanner = RangeScanner()
    scanner._begin(records, start, length)
    return scanner


def _an_index(index: Index) -> Index:
    """An index that was given, checked: not something else, and not closed."""
    if not isinstance(index, Index):
        raise TypeError(f"index is an Index, not {type(index).__name__}")
    index._opened()
    return index
