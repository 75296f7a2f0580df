"""Files of records that tell their own number, so that a wrong record is seen wherever it turns up."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import anyrecord

__all__ = ["ScriptedFile", "expected", "open_descriptors", "write"]


@cache
def expected(index: int) -> bytes:
    """Record `index`: its number, then up to 3 kilobytes that depend on it and that no codec makes smaller."""
    return b"%d:" % index + random.Random(index).randbytes(index * 37 % 3001)


def write(path: Path, indices: Iterable[int]) -> Path:
    """Writes records of these numbers; an existing file is replaced by a rename."""
    # Several chunks, so that one record does not bring all the others with it.
    chunk_bytes = 8000 if path.suffix == ".recordio" else None
    with anyrecord.create(path, overwrite=True, durable=False, chunk_bytes=chunk_bytes) as out:
        out.write_many(expected(index) for index in indices)
    return path


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


class ScriptedFile(io.RawIOBase):
    """A file object over bytes that calls `before_read` before each read of anything."""

    def __init__(self, data: bytes) -> None:
        self._inner = io.BytesIO(data)
        self.before_read: Callable[[], object] | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()

    def read(self, size: int = -1) -> bytes:
        if size != 0 and self.before_read is not None:
            self.before_read()
        return self._inner.read(size)
