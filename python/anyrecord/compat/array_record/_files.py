"""Opens files by their exact names: no globs, no folders, no ranges."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

import anyrecord
from anyrecord.compat._types import StrPath, exact, is_url
from anyrecord.compat.array_record._options import ReaderOptions

__all__ = ["Instruction", "open_all", "open_one"]


class Instruction(NamedTuple):
    """A file and a range of its records. If `end` is None, all records."""

    filename: str
    start: int = 0
    end: int | None = None


def open_one(path: str, options: ReaderOptions) -> anyrecord.Records:
    """Opens the records of one file."""
    _check(path)
    # In a list, a URL is an object and never a folder.
    return anyrecord.open([exact(path)], format="array_record", table=options.table, storage=options.storage)


def open_all(instructions: Sequence[Instruction], options: ReaderOptions) -> anyrecord.Records:
    """Opens the records of all files as one sequence."""
    names = [_name(instruction) for instruction in instructions]
    return anyrecord.open(names, format="array_record", table=options.table, storage=options.storage)


def _check(path: str) -> None:
    """Raises if the file does not exist. `anyrecord.open` would take such a name for a pattern."""
    if is_url(path):
        return  # opening it is the check
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    os.stat(path)


def _name(instruction: Instruction) -> StrPath:
    path, start, end = instruction
    _check(path)
    if end is None:
        return exact(path)
    name = f"{path}[{start}:{end}]"
    if not is_url(path) and os.path.lexists(name):
        raise FileExistsError(errno.EEXIST, "this can be a range or a file of that name; rename the file", name)
    return name
