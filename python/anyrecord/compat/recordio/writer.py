"""`Writer` and `new_writer`: write records to a path or to an open file."""

from __future__ import annotations

import io
import operator
from types import TracebackType
from typing import Any, BinaryIO, Final, Literal, NoReturn, Self, SupportsIndex

import anyrecord
from anyrecord.compat._types import shown, text_of
from anyrecord.compat.recordio.source import StrPath, file_object, path_text
from anyrecord.compat.runtime_errors import runtime_error

__all__ = ["GZIP", "NO_COMPRESSION", "SNAPPY", "ChunkWriter", "Writer", "new_writer"]

NO_COMPRESSION: Final = 0
"""Records are not compressed."""
SNAPPY: Final = 1
"""The snappy framing format; the default."""
GZIP: Final = 2
"""One gzip member for each chunk."""

_CODECS: Final[dict[int, Literal["none", "snappy", "gzip"]]] = {NO_COMPRESSION: "none", SNAPPY: "snappy", GZIP: "gzip"}


class _Output:
    """A writer that raises the original's error messages."""

    _out: anyrecord.Writer
    _chunk_bytes = 32 << 20
    _is_closed = False

    def _put(self, record: Any) -> None:
        if self._is_closed:
            raise runtime_error("", anyrecord.ClosedError("Cannot write since writer had been closed"))
        size = memoryview(record).nbytes
        if size >= self._chunk_bytes:
            raise ValueError(
                "Cannot write big record close to the chunk size: it has "
                f"{size} bytes, and with chunks of {self._chunk_bytes} bytes the largest is {self._chunk_bytes - 1}"
            )
        try:
            self._out.write(record)
        except (anyrecord.RecordError, OSError) as error:
            raise runtime_error("Failed to write chunk data", error) from error

    def close(self) -> None:
        """Writes the last chunk and finishes the file. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._out.close()
        except (anyrecord.RecordError, OSError) as error:
            raise runtime_error("Failed to write chunk data", error) from error

    def _discard(self) -> None:
        self._is_closed = True
        if not self._out.closed:
            self._out.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif not self._is_closed:
            self._discard()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle a {type(self).__name__}; make one in each process, each with its own file")


class Writer(_Output):
    """Writes a file in chunks of 32 MiB with snappy.

    `close()` publishes the file and replaces an older one. If an exception leaves the `with` block, nothing is
    published. A writer that is garbage-collected before `close()` publishes nothing and issues a `RuntimeWarning`.

    >>> from anyrecord.compat.recordio import Index, Writer
    >>> writer = Writer("doc.recordio")
    >>> writer.write(b"a record")
    >>> writer.write("text")
    Traceback (most recent call last):
    ValueError: record is not a bytes type, got: <class 'str'>
    >>> writer.close()
    >>> Index("doc.recordio").num_records()
    1
    """

    def __init__(self, path: StrPath) -> None:
        name = text_of(path_text(path))
        try:
            self._out = anyrecord.create(name, format="recordio", overwrite=True)
        except (OSError, ValueError, anyrecord.RecordError) as error:
            raise runtime_error(f"Failed to create recordio file: {shown(name)}", error) from error

    def write(self, record: bytes) -> None:
        """Writes a record. It must be `bytes` and smaller than 32 MiB."""
        if not isinstance(record, bytes):
            raise ValueError(f"record is not a bytes type, got: {type(record)}")
        self._put(record)


class ChunkWriter(_Output):
    """The writer that `new_writer` returns."""

    def __init__(self, file: BinaryIO, chunk_bytes: int, codec: Literal["none", "snappy", "gzip"]) -> None:
        self._file, self._chunk_bytes = file, chunk_bytes
        self._out = anyrecord.create(file, format="recordio", codec=codec, chunk_bytes=chunk_bytes)

    def write(self, record: bytes | bytearray | memoryview) -> int:
        """Writes a copy of a record and returns its length."""
        before = self._out.num_bytes
        self._put(record)
        return self._out.num_bytes - before

    def close(self) -> None:
        """Writes the last chunk and closes the file. A `BytesIO` stays open. A second call does nothing."""
        if self._is_closed:
            return
        try:
            super().close()
        finally:
            self._close_file()

    def _discard(self) -> None:
        super()._discard()
        self._close_file()

    def _close_file(self) -> None:
        if not isinstance(self._file, io.BytesIO) and hasattr(self._file, "close"):
            self._file.close()


def new_writer(file: BinaryIO, max_chunk_size: SupportsIndex = -1, compressor: SupportsIndex = -1) -> ChunkWriter:
    """Returns a writer to an open file.

    Chunks have 32 MiB unless `max_chunk_size` is positive. `compressor` is `NO_COMPRESSION`, `SNAPPY` or `GZIP`; a
    negative number means snappy.

    >>> from anyrecord.compat.recordio import NO_COMPRESSION, new_writer
    >>> with open("doc.recordio", "wb") as file:
    ...     writer = new_writer(file, -1, NO_COMPRESSION)
    ...     print(writer.write(b"x"))
    ...     writer.close()
    1
    """
    file_object(file, "write")
    size, number = operator.index(max_chunk_size), operator.index(compressor)
    codec = _CODECS.get(SNAPPY if number < 0 else number)
    if codec is None:
        raise ValueError(f"Unknown compressor ID: {number}; pass 0 for none, 1 or less than 0 for snappy, 2 for gzip")
    return ChunkWriter(file, size if size > 0 else ChunkWriter._chunk_bytes, codec)
