"""The exceptions of this package. They say what is wrong and where.

    RecordError(Exception)
    ├── FormatError          not this format, or an invalid structure (also ValueError)
    │   ├── TruncatedError   the file ends before it should
    │   └── ChecksumError    a hash does not match
    ├── LeaseLostError       another worker has the shard
    ├── LimitError           a declared size is over a limit
    ├── PublishError         a set of files is being published, or publishing it was interrupted
    └── ClosedError          used after close (also ValueError)

    DamageWarning(UserWarning)  a damaged record was left out or replaced, because `on_error=` asks for it

`FileNotFoundError`, `FileExistsError`, `PermissionError`, `IndexError` and `TypeError` are raised unchanged.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ChecksumError",
    "ClosedError",
    "DamageWarning",
    "FormatError",
    "LeaseLostError",
    "LimitError",
    "PublishError",
    "RecordError",
    "TruncatedError",
]


class RecordError(Exception):
    """Something is wrong with a record file. The attributes say where, if that is known."""

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
        # Worker processes pickle exceptions to send them to the parent. The default would lose the keywords.
        return type(self), self.args, self.__dict__


class FormatError(RecordError, ValueError):
    """The file does not have this format, or its structure is invalid."""


class TruncatedError(FormatError):
    """The file ends before it should."""


class ChecksumError(FormatError):
    """A stored hash does not match the bytes."""


class LeaseLostError(RecordError):
    """This worker does not hold the shard any more, because it did not renew its lease in time.

    `record` is the first record of the shard, `expected` is our fencing token, and `found` says who has the shard now.
    """


class LimitError(RecordError):
    """A declared size is over a limit. The message names the keyword that sets the limit."""


class PublishError(RecordError):
    """A set of files is being published, or publishing it was interrupted.

    If it was interrupted, `anyrecord.recover` finishes or undoes it. `path` is the journal, if there is one.
    """


class ClosedError(RecordError, ValueError):
    """An object was used after it was closed."""


class DamageWarning(UserWarning):
    """A damaged record was left out or replaced, because the records were opened with `on_error=`.

    There is one warning for each damaged record, or one for all records of a damaged chunk.
    """
