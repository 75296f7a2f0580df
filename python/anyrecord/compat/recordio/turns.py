"""An open file that several readers use at the same time: each has a position of its own, and they take turns."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, BinaryIO

__all__ = ["TurnTaking"]

_locks: weakref.WeakKeyDictionary[Any, threading.Lock] = weakref.WeakKeyDictionary()
_making = threading.Lock()


class TurnTaking:
    """A file that is sought and read in one go, so that nobody else moves it in between."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0
        with _making:
            try:
                self._lock = _locks.setdefault(file, threading.Lock())
            except TypeError:  # neither hashed nor referred to weakly: it cannot be told apart from others
                self._lock = _one_for_all
        self.name = getattr(file, "name", None) or f"<{type(file).__name__}>"

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position of this reader only."""
        if whence == os.SEEK_END:
            with self._lock:
                self._position = self._file.seek(offset, whence)
        else:
            self._position = offset + (self._position if whence == os.SEEK_CUR else 0)
        return self._position

    def tell(self) -> int:
        """The position of this reader."""
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Reads from the position of this reader."""
        with self._lock:
            self._file.seek(self._position)
            found = self._file.read(size)
        self._position += len(found)
        return found


_one_for_all = threading.Lock()


def _forked() -> None:
    """A thread that is not in this process may have held any of the locks."""
    global _locks, _making, _one_for_all
    _locks, _making, _one_for_all = weakref.WeakKeyDictionary(), threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
