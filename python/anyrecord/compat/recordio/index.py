"""`Index`: counts the records and chunks of a file, and locates records."""

from __future__ import annotations

import operator
from typing import Any, BinaryIO, Self, SupportsIndex

import anyrecord
from anyrecord.compat.recordio.source import StrPath, chunks_of, file_object, identity_of, path_text, records_of, shown
from anyrecord.compat.runtime_errors import runtime_error

__all__ = ["Index", "load_index"]


class Index:
    """The table of a file, from the headers of its chunks. It reads no records.

    >>> from anyrecord.compat.recordio import Index, Scanner, Writer
    >>> with Writer("doc.recordio") as writer:
    ...     writer.write(b"one")
    ...     writer.write(b"two")
    >>> index = Index("doc.recordio")
    >>> index.num_records(), index.num_chunks(), index.locate(1), index.locate(2)
    (2, 1, (0, 1), (-1, -1))
    >>> [Scanner("doc.recordio", start, 1, index).record() for start in range(2)]
    [b'one', b'two']

    Any number of scanners can share an index at the same time; the headers are read once. Scanners continue to work
    after the index is closed.
    """

    def __init__(self, path: StrPath) -> None:
        name = path_text(path)
        try:
            identity = identity_of(name)
            records = records_of(name)
        except (OSError, ValueError, anyrecord.RecordError) as error:
            raise runtime_error(f"Failed to read index from recordio file: {shown(name)}", error) from error
        self._fill(records, identity)

    def _fill(self, records: anyrecord.Records, identity: Any) -> None:
        self._records: anyrecord.Records | None = records
        self._identity = identity
        self._counts = len(records), chunks_of(records)

    def num_records(self) -> int:
        """How many records there are."""
        self._opened()
        return self._counts[0]

    def num_chunks(self) -> int:
        """How many chunks there are."""
        self._opened()
        return self._counts[1]

    def locate(self, index: SupportsIndex) -> tuple[int, int]:
        """Returns the chunk of a record and its row in the chunk. `(-1, -1)` if there is no such record."""
        records, number = self._opened(), operator.index(index)
        if not 0 <= number < len(records):
            return -1, -1
        place = records.locate(number)
        return place.chunk, place.row

    def close(self) -> None:
        """Closes the index. A second call does nothing. A file object that you passed stays open."""
        self._records = None

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _opened(self) -> anyrecord.Records:
        records = self._records
        if records is None:
            raise runtime_error("", anyrecord.ClosedError("this index is closed; load it again"))
        return records

    def _records_of_path(self, path: str) -> anyrecord.Records:
        """The records of `path`. Raises FormatError if this is the index of another file."""
        records = self._opened()
        if identity_of(path) == self._identity:
            return records
        return self._checked(records_of(path))

    def _records_of_file(self, file: BinaryIO) -> anyrecord.Records:
        """The records of an open file. Raises FormatError if this is the index of another file."""
        records = self._opened()
        return records if self._identity is file else self._checked(records_of(file))

    def _checked(self, records: anyrecord.Records) -> anyrecord.Records:
        found = len(records), chunks_of(records)
        if found == self._counts:
            return records
        expected = "{} records in {} chunks".format(*self._counts)
        seen = "{} records in {} chunks".format(*found)
        raise anyrecord.FormatError(
            f"the index belongs to another file, not to {records.paths[0]}: expected {expected}, found {seen}; "
            "load the index of this file",
            path=records.paths[0],
            expected=expected,
            found=seen,
        )


def load_index(file: BinaryIO) -> Index:
    """Loads the index of an open file. It reads the file from the beginning, whatever its position is.

    >>> import io
    >>> from anyrecord.compat.recordio import load_index, new_writer
    >>> file = io.BytesIO()
    >>> writer = new_writer(file, max_chunk_size=10)
    >>> [writer.write(record) for record in (b"12345", b"123456", b"1")]
    [5, 6, 1]
    >>> writer.close()
    >>> index = load_index(file)
    >>> index.num_records(), index.num_chunks(), [index.locate(i) for i in range(3)]
    (3, 2, [(0, 0), (1, 0), (1, 1)])
    """
    file_object(file, "read")
    try:
        records = records_of(file)
    except anyrecord.RecordError as error:
        is_other = str(error).startswith(("no RecordIO chunk", "wrong format"))
        raise runtime_error("Failed to parse magic number" if is_other else "Failed to load index", error) from error
    except OSError as error:
        raise runtime_error("Failed to load index", error) from error
    index = Index.__new__(Index)
    index._fill(records, file)
    return index
