"""Originals raise `RuntimeError`; so do these, which are anyrecord's errors as well, with all that those know."""

from __future__ import annotations

from anyrecord import ChecksumError, ClosedError, FormatError, LimitError, RecordError, TruncatedError

__all__ = ["ClosedFileError", "CutFileError", "DamagedFileError", "MismatchError", "OverLimitError", "runtime_error"]


class DamagedFileError(FormatError, RuntimeError):
    """A file whose structure cannot be."""


class CutFileError(TruncatedError, RuntimeError):
    """A file that ends before it should."""


class MismatchError(ChecksumError, RuntimeError):
    """A checksum that does not fit."""


class OverLimitError(LimitError, RuntimeError):
    """A declared size over a limit."""


class ClosedFileError(ClosedError, RuntimeError):
    """Used after close."""


_KINDS: dict[type[RecordError], type[RecordError]] = {
    TruncatedError: CutFileError,
    ChecksumError: MismatchError,
    LimitError: OverLimitError,
    ClosedError: ClosedFileError,
}


def runtime_error(first_line: str, error: Exception) -> Exception:
    """`error` as a `RuntimeError` that begins with the line the original has for it, and goes on with ours."""
    message = f"{first_line}\n{error}" if first_line else str(error)
    if not isinstance(error, RecordError):
        return RuntimeError(message)
    told = RecordError(str(error)).__dict__ | error.__dict__
    return _KINDS.get(type(error), DamagedFileError)(message, **told)
