"""Opens files by their exact names: no globs, no folders, no ranges."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import anyrecord

__all__ = ["Instruction", "open_all", "open_one"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class Instruction(NamedTuple):
    """A file and a range of its records. If `end` is None, all records."""

    filename: str
    start: int = 0
    end: int | None = None


def open_one(path: str, table: Literal["memory", "disk"] = "memory") -> anyrecord.Records:
    """Opens the records of one file."""
    _check(path)
    return anyrecord.open(path, format="array_record", table=table)


def open_all(instructions: Sequence[Instruction], table: Literal["memory", "disk"]) -> anyrecord.Records:
    """Opens the records of all files as one sequence."""
    names = [_name(instruction) for instruction in instructions]
    return anyrecord.open(names, format="array_record", table=table)


def _check(path: str) -> None:
    """Raises if the file does not exist. `anyrecord.open` would take such a name for a pattern."""
    if _URL.match(path):
        return
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    os.stat(path)


def _name(instruction: Instruction) -> str:
    path, start, end = instruction
    _check(path)
    if end is None:
        return path
    name = f"{path}[{start}:{end}]"
    if os.path.lexists(name):
        raise FileExistsError(errno.EEXIST, "this can be a range or a file of that name; rename the file", name)
    return name
