"""What is common to all that reads: paths and open files as records, ranges, and the lines that the original has."""

from __future__ import annotations

import errno
import io
import operator
import os
from typing import Any, SupportsIndex

import anyrecord
from anyrecord.compat._types import StrPath
from anyrecord.compat.recordio.turns import TurnTaking
from anyrecord.compat.runtime_errors import runtime_error

__all__ = ["StrPath", "bounds", "chunks_of", "file_object", "path_text", "read_error", "records_of", "regular_file"]


def path_text(path: Any) -> str:
    """A path as text. What is none has no `encode`, says the original."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        kind = type(text).__name__
        raise AttributeError(f"'{kind}' object has no attribute 'encode': a path is a str or a PathLike of one")
    return text


def regular_file(path: str) -> os.stat_result:
    """The state of a file of that very name: here, `*`, `@` and brackets have no meaning."""
    state = os.stat(path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return state


def file_object(file: Any, method: str) -> Any:
    """An open file, checked."""
    if not hasattr(file, method):
        raise TypeError(f"an open file with {method}() is needed, not {type(file).__name__}")
    return file


def records_of(source: Any) -> anyrecord.Records:
    """The records of a path, of several, or of an open file."""
    if hasattr(source, "read") and not isinstance(source, io.BytesIO):  # whose bytes are copied
        source = TurnTaking(source)
    return anyrecord.open(source, format="recordio")


def chunks_of(records: anyrecord.Records) -> int:
    """How many chunks a file has; there are none without records."""
    return records.locate(len(records) - 1).chunk + 1 if len(records) else 0


def bounds(total: int, start: SupportsIndex, length: SupportsIndex) -> slice:
    """The part of `total` records from `start` on: `length` of them, or all up to the end if it is negative.

    >>> bounds(10, 2, 3), bounds(10, -5, -1), bounds(10, 8, 100), bounds(10, 11, -1)
    (slice(2, 5, None), slice(0, 10, None), slice(8, 10, None), slice(10, 10, None))
    """
    first = min(max(operator.index(start), 0), total)
    count = operator.index(length)
    return slice(first, total if count < 0 else min(first + count, total))


def read_error(error: Exception) -> Exception:
    """What is wrong with a record, beginning with the line that the original has for it."""
    if isinstance(error, anyrecord.ClosedError):
        return runtime_error("", error)
    known = isinstance(error, anyrecord.ChecksumError)
    return runtime_error("Checksum checking failed" if known else "Failed to read a record", error)
