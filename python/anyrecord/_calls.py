"""Calls to functions that the user passes in, such as `map` and `progress`, and the errors that they raise."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

__all__ = ["Progress", "add_note", "stop_iteration_error"]


def stop_iteration_error(error: StopIteration) -> RuntimeError:
    """Returns the error to raise instead of a `StopIteration` of a user's function, which would silently end a loop."""
    return RuntimeError("your function or object raised StopIteration, which would end the iteration without an error")


def add_note(error: BaseException, note: str) -> None:
    """Adds a note to an exception, unless the exception already has that note."""
    with suppress(Exception):  # a user's exception class may refuse notes; the user must still see its error
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


class Progress:
    """Calls a user's `progress` function. One part of the work reports its progress as progress of the whole.

    >>> progress = Progress(lambda done, total: print(done, "of", total), total=10, before=4)
    >>> progress(3)
    7 of 10
    """

    def __init__(
        self, function: Callable[[int, int], object] | None, total: int | None = None, before: int = 0
    ) -> None:
        if function is not None and not callable(function):
            raise TypeError(f"progress needs a function, not {type(function).__name__}")
        self._function, self._total, self._before = function, total, before

    def __call__(self, done: int, size: int = 0) -> None:
        """Reports that `done` of this part is done. If no total was given, `size` is the total."""
        if self._function is None:
            return
        try:
            self._function(self._before + done, size if self._total is None else self._total)
        except StopIteration as error:
            raise stop_iteration_error(error) from error
