"""Removes files from the page cache, and says whether that worked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

__all__ = ["cool", "why_not"]

_PLACES = 64
"""So many places of each file are looked at."""
_PATIENCE = 5.0
"""Seconds."""


def why_not(paths: Iterable[str]) -> str | None:
    """Why files cannot be removed from the page cache here. None if they can, as far as we know."""
    if not hasattr(os, "posix_fadvise"):
        return "this system cannot remove files from the page cache"
    for path in paths:
        forget(path)
        if _is_cached(path):
            return f"{path} stays in the page cache; another program uses it, or it is on a file system in memory"
    return None


def forget(path: str) -> None:
    """Asks the system to drop a file from the page cache. Pages that a process has mapped stay."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # pages that are not on disk yet would stay
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def cool(paths: Iterable[str]) -> None:
    """Removes files from the page cache. Waits for what is still on its way into it, at most some seconds.

    What one reader has asked the system to read ahead would make the files warm for the next one.
    """
    end = time.monotonic() + _PATIENCE
    for path in paths:
        forget(path)
        while _is_cached(path, most=0) and time.monotonic() < end:
            time.sleep(0.01)
            forget(path)


def _is_cached(path: str, most: float = 0.25) -> bool:
    """Whether more than `most` of some places of the file are in the page cache. False if that cannot be found out."""
    if not hasattr(os, "RWF_NOWAIT"):
        return False
    size = os.path.getsize(path)
    places = range(0, size, max(size // _PLACES, 4096))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = sum(_is_there(descriptor, place) for place in places)
    except OSError:  # the file system does not tell
        return False
    finally:
        os.close(descriptor)
    return found > len(places) * most


def _is_there(descriptor: int, place: int) -> bool:
    try:
        return os.preadv(descriptor, [bytearray(1)], place, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
