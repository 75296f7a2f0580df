"""Functions of the caller: what they raise is told apart from what an iteration raises, and says where it happened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

__all__ = ["Progress", "add_note", "not_an_end"]


def not_an_end(error: StopIteration) -> RuntimeError:
    """What to raise `from` a `StopIteration` of a caller's function: as it is, it would end a loop in silence."""
    return RuntimeError("a function or an object of the caller raised StopIteration, which would end the iteration")


def add_note(error: BaseException, note: str) -> None:
    """Adds a note, once."""
    with suppress(Exception):  # a class of the caller's may be strange; its error is what counts
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


class Progress:
    """A caller's `progress` function, told of a part of the work as of the whole.

    >>> told = Progress(lambda done, total: print(done, "of", total), total=10, before=4)
    >>> told(3)
    7 of 10
    """

    def __init__(
        self, function: Callable[[int, int], object] | None, total: int | None = None, before: int = 0
    ) -> None:
        if function is not None and not callable(function):
            raise TypeError(f"progress needs a function, not {type(function).__name__}")
        self._function, self._total, self._before = function, total, before

    def __call__(self, done: int, size: int = 0) -> None:
        """To be called with what is done of the part; `size` is all of it, where no total was given."""
        if self._function is None:
            return
        try:
            self._function(self._before + done, size if self._total is None else self._total)
        except StopIteration as error:
            raise not_an_end(error) from error
