"""What can go wrong, and where.

    RecordError(Exception)
    ├── FormatError          not this format, or a structure that cannot be (also ValueError)
    │   ├── TruncatedError   the file ends before it should
    │   └── ChecksumError    a hash does not match
    ├── LimitError           a declared size is over a limit
    ├── PublishError         a set of files is being published, or publishing it was interrupted
    └── ClosedError          used after close (also ValueError)

`FileNotFoundError`, `FileExistsError`, `PermissionError`, `IndexError` and `TypeError` stay what they are.
"""

from __future__ import annotations

from typing import Any

__all__ = ["ChecksumError", "ClosedError", "FormatError", "LimitError", "PublishError", "RecordError", "TruncatedError"]


class RecordError(Exception):
    """Something is wrong with a record file. Says where, as far as that is known."""

    path: str | None
    """The file."""
    offset: int | None
    """The byte offset in the file."""
    record: int | None
    """The record's number."""
    expected: str | None
    """What should have been there."""
    found: str | None
    """What was there."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        record: int | None = None,
        expected: str | None = None,
        found: str | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset
        self.record = record
        self.expected = expected
        self.found = found

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes send exceptions home by pickle; the default would lose the keywords.
        return type(self), self.args, self.__dict__


class FormatError(RecordError, ValueError):
    """Not this format, or a structure that cannot be."""


class TruncatedError(FormatError):
    """The file ends before it should."""


class ChecksumError(FormatError):
    """A stored hash does not match the bytes."""


class LimitError(RecordError):
    """A declared size is over a limit; the message names the keyword that raises it."""


class PublishError(RecordError):
    """A set of files is being published, or publishing it was interrupted; `anyrecord.recover` finishes or undoes it.

    `path` is the journal, where there is one.
    """


class ClosedError(RecordError, ValueError):
    """Used after it was closed."""
