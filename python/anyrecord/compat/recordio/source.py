"""Helpers of all readers: open paths and file objects, compute ranges, and add the original's error messages."""

from __future__ import annotations

import errno
import io
import operator
import os
from typing import Any, SupportsIndex

import anyrecord
from anyrecord.compat._types import StrPath, exact, is_url, name_of, shown
from anyrecord.compat.recordio.shared_file import SharedFile
from anyrecord.compat.runtime_errors import runtime_error

__all__ = [
    "StrPath",
    "bounds",
    "chunks_of",
    "file_object",
    "identity_of",
    "path_text",
    "read_error",
    "records_of",
    "shown",
]


def path_text(path: Any) -> str:
    """A path as text. Raises AttributeError for anything else, as the original does."""
    text = name_of(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        kind = type(text).__name__
        raise AttributeError(f"'{kind}' object has no attribute 'encode': pass the path as a str or a PathLike of str")
    return text


def identity_of(path: str) -> object:
    """What identifies the file with exactly this name. `*`, `@` and brackets have no special meaning here.

    Raises OSError if there is no such local file. A URL is not looked up.
    """
    if is_url(path):
        return path
    state = os.stat(path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def file_object(file: Any, method: str) -> Any:
    """Checks that the argument is an open file with this method."""
    if not hasattr(file, method):
        raise TypeError(f"pass an open file with {method}(), not {type(file).__name__}")
    return file


def records_of(source: Any) -> anyrecord.Records:
    """Opens the records of a path, of several paths, or of an open file."""
    if hasattr(source, "read") and not isinstance(source, io.BytesIO):  # the bytes of a BytesIO are copied
        source = SharedFile(source)
    elif isinstance(source, list):
        source = [exact(path) for path in source]
    elif isinstance(source, str):
        source = [exact(source)]  # in a list, a URL is an object and never a folder
    return anyrecord.open(source, format="recordio")


def chunks_of(records: anyrecord.Records) -> int:
    """How many chunks a file has. A file without records has none."""
    return records.locate(len(records) - 1).chunk + 1 if len(records) else 0


def bounds(total: int, start: SupportsIndex, length: SupportsIndex) -> slice:
    """The slice of `length` out of `total` records, beginning at `start`. A negative `length` means all to the end.

    >>> bounds(10, 2, 3), bounds(10, -5, -1), bounds(10, 8, 100), bounds(10, 11, -1)
    (slice(2, 5, None), slice(0, 10, None), slice(8, 10, None), slice(10, 10, None))
    """
    first = min(max(operator.index(start), 0), total)
    count = operator.index(length)
    return slice(first, total if count < 0 else min(first + count, total))


def read_error(error: Exception) -> Exception:
    """Returns the error of a read as a RuntimeError whose first line is the original's message."""
    if isinstance(error, anyrecord.ClosedError):
        return runtime_error("", error)
    known = isinstance(error, anyrecord.ChecksumError)
    return runtime_error("Checksum checking failed" if known else "Failed to read a record", error)
