"""`Scanner` and `new_scanner`: read a range of records in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Self, SupportsIndex

import anyrecord
from anyrecord.compat.recordio.index import Index, load_index
from anyrecord.compat.recordio.source import StrPath, bounds, file_object, path_text, read_error, shown
from anyrecord.compat.runtime_errors import runtime_error

__all__ = ["RangeScanner", "Scanner", "new_scanner"]


class _Range:
    """The records of a range, in order, up to the first error. The error stays. It cannot be opened again."""

    _records: Iterator[bytes] | None
    _error: Exception | None = None

    def _begin(self, records: anyrecord.Records, start: SupportsIndex, length: SupportsIndex) -> None:
        self._records = iter(records[bounds(len(records), start, length)])

    def _next(self) -> bytes | None:
        """Returns the next record. None at the end and at an error."""
        if self._records is None:
            raise runtime_error("", anyrecord.ClosedError("this scanner is closed; make a new one"))
        try:
            record = next(self._records, None)
        except (anyrecord.RecordError, OSError) as error:
            record, self._error = None, read_error(error)
            self._error.__cause__ = error.with_traceback(None)  # a traceback would keep the records alive
        if record is None:
            self._records = iter(())  # there are no more records: release the file
        return record

    def close(self) -> None:
        """Closes the scanner. A second call does nothing. A file object that you passed stays open."""
        self._records = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Scanner(_Range):
    """Reads `len` records of a file, beginning at `start`. A negative `len` means all records to the end.

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

    You can use a scanner in forked children and from many threads. Each thread gets different records.
    """

    def __init__(
        self, path: StrPath, start: SupportsIndex = 0, len: SupportsIndex = -1, index: Index | None = None
    ) -> None:
        name = path_text(path)
        table = Index(name) if index is None else _an_index(index)
        try:
            records = table._records_of_path(name)
        except (OSError, ValueError, anyrecord.RecordError) as error:
            raise runtime_error(f"Failed to create scanner for recordio file: {shown(name)}", error) from error
        self._begin(records, start, len)

    def record(self) -> bytes | None:
        """Returns the next record, or None at the end. After an error, every call raises that error."""
        record = self._next()
        if record is None and self._error is not None:
            raise self._error
        return record

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.record, None)


class RangeScanner(_Range):
    """The scanner that `new_scanner` returns. Call `scan()`, then `record()`, and at the end `error()`."""

    _record: bytes | None = None

    def scan(self) -> bool:
        """Moves to the next record. Returns False at the end and at an error. `error()` is None at the end."""
        self._record = self._next()
        return self._record is not None

    def record(self) -> bytes:
        """Returns the record that `scan()` moved to."""
        if self._record is None:
            raise RuntimeError("there is no current record; call record() only after scan() has returned True")
        return self._record

    def error(self) -> Exception | None:
        """Returns the error that stopped the scanner. None if there was none, also at the end."""
        return self._error

    def close(self) -> None:
        """Closes the scanner. The file object stays open. A second call does nothing."""
        super().close()
        self._record = None


def new_scanner(
    file: BinaryIO, index: Index | None = None, start: SupportsIndex = 0, length: SupportsIndex = -1
) -> RangeScanner:
    """Returns a scanner of `length` records of an open file, beginning at `start`. Negative means all to the end.

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

    Scanners of one file can share its index, even if they are used alternately or in different threads.
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
    """Checks that the argument is an index and is not closed."""
    if not isinstance(index, Index):
        raise TypeError(f"index must be an Index, not {type(index).__name__}")
    index._opened()
    return index
