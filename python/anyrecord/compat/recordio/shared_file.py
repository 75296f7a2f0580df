"""An open file that several readers share. Each reader has its own position, and a lock serialises the reads."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, BinaryIO

__all__ = ["SharedFile"]

_locks: weakref.WeakKeyDictionary[Any, threading.Lock] = weakref.WeakKeyDictionary()
_making = threading.Lock()


class SharedFile:
    """One reader of a shared file. It seeks and reads under a lock, so no other reader moves the file in between."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0
        with _making:
            try:
                self._lock = _locks.setdefault(file, threading.Lock())
            except TypeError:  # the object cannot be a key of the dict (not hashable, or no weak references)
                self._lock = _fallback_lock
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


_fallback_lock = threading.Lock()


def _forked() -> None:
    """Replaces all locks in a forked child, because a thread of the parent may have held them."""
    global _locks, _making, _fallback_lock
    _locks, _making, _fallback_lock = weakref.WeakKeyDictionary(), threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
