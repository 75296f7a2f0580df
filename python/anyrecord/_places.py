"""`Location` and `Skipped`: where a record is stored, and which records could not be read."""

from __future__ import annotations

from typing import NamedTuple

from anyrecord._dataclasses import dataclass

__all__ = ["Location", "Skipped"]


class Location(NamedTuple):
    """The place where a record is stored."""

    path: str
    """The file."""
    chunk: int
    """The chunk's number in the file."""
    row: int
    """The record's number in the chunk."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A damaged record that was left out or replaced, because the records were opened with `on_error=`."""

    path: str
    """The file."""
    record: int
    """The record's number in the file."""
    index: int
    """The record's number in what was opened. Of records opened together or concatenated, it counts all files."""
    error: str
    """What is wrong, as the exception says it."""
