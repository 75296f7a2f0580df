"""The exceptions that code for the original expects.

The original raises RuntimeError for most errors. It raises ValueError or RuntimeError where other sequences raise
IndexError. There, the classes here inherit from both, so code that catches either one works.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from anyrecord import RecordError

__all__ = ["FAILURES", "BatchIndexError", "KeyRangeError", "KeyTypeError", "RangeError", "failure", "failures"]

FAILURES = (OSError, RecordError)
"""The exceptions that reading and writing files raises."""


class BatchIndexError(IndexError, RuntimeError):
    """A record number past the end. The original raises RuntimeError."""


class RangeError(IndexError, RuntimeError):
    """A range was read from a reader that is closed or has failed."""


class KeyRangeError(IndexError, ValueError):
    """A key of a data source is out of range. The original raises ValueError."""


class KeyTypeError(TypeError, AttributeError):
    """A key of a data source is not an integer. The original raises AttributeError."""


def failure(error: Exception) -> RuntimeError:
    """Returns a file error as the RuntimeError that the original would raise."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return RuntimeError(f"{error.strerror}: {os.fsdecode(error.filename)}")
    return RuntimeError(str(error))


@contextmanager
def failures() -> Iterator[None]:
    """Turns the exceptions of files into RuntimeError."""
    try:
        yield
    except FAILURES as error:
        raise failure(error) from error
