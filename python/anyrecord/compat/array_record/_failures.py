"""What goes wrong, as the exceptions that code for the original expects.

The original raises RuntimeError for nearly everything, and ValueError or RuntimeError where a sequence raises
IndexError. Where one exception cannot please both, it is of both kinds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from anyrecord import RecordError

__all__ = ["FAILURES", "BatchIndexError", "KeyRangeError", "KeyTypeError", "RangeError", "failure", "failures"]

FAILURES = (OSError, RecordError)
"""What reading and writing files raises."""


class BatchIndexError(IndexError, RuntimeError):
    """A record number behind the end, where the original raises RuntimeError."""


class RangeError(IndexError, RuntimeError):
    """A range of a reader that has no records to give, because it is closed or has failed."""


class KeyRangeError(IndexError, ValueError):
    """A key of a data source that is outside, where the original raises ValueError."""


class KeyTypeError(TypeError, AttributeError):
    """A key of a data source that is not an integer, where the original raises AttributeError."""


def failure(error: Exception) -> RuntimeError:
    """An error of a file as the RuntimeError that the original would raise."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return RuntimeError(f"{error.strerror}: {os.fsdecode(error.filename)}")
    return RuntimeError(str(error))


@contextmanager
def failures() -> Iterator[None]:
    """Turns what files raise into RuntimeError."""
    try:
        yield
    except FAILURES as error:
        raise failure(error) from error
