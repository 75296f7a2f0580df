"""Errors of anyrecord that are also `RuntimeError`, which the originals raise. They keep all attributes."""

from __future__ import annotations

from anyrecord import ChecksumError, ClosedError, FormatError, LimitError, RecordError, TruncatedError

__all__ = [
    "ClosedFileError",
    "DamagedFileError",
    "MismatchError",
    "OverLimitError",
    "TruncatedFileError",
    "runtime_error",
]


class DamagedFileError(FormatError, RuntimeError):
    """A file has an invalid structure."""


class TruncatedFileError(TruncatedError, RuntimeError):
    """A file ends before it should."""


class MismatchError(ChecksumError, RuntimeError):
    """A checksum does not match."""


class OverLimitError(LimitError, RuntimeError):
    """A declared size is over a limit."""


class ClosedFileError(ClosedError, RuntimeError):
    """An object was used after it was closed."""


_KINDS: dict[type[RecordError], type[RecordError]] = {
    TruncatedError: TruncatedFileError,
    ChecksumError: MismatchError,
    LimitError: OverLimitError,
    ClosedError: ClosedFileError,
}


def runtime_error(first_line: str, error: Exception) -> Exception:
    """Returns `error` as a `RuntimeError`. Its first line is the original's message, followed by anyrecord's."""
    message = f"{first_line}\n{error}" if first_line else str(error)
    if not isinstance(error, RecordError):
        return RuntimeError(message)
    # Not what else an exception can have, such as notes.
    attributes = {name: error.__dict__.get(name) for name in RecordError(message).__dict__}
    return _KINDS.get(type(error), DamagedFileError)(message, **attributes)
