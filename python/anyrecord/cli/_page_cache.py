"""Removes files from the page cache, and says whether that worked."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterable

__all__ = ["cool", "why_not"]

_PLACES = 64
"""So many places of each file are looked at."""
_PATIENCE = 5.0
"""Seconds."""
_PAUSE = 0.01
"""Seconds between two looks. Pages that are being read from the disk meanwhile are seen by the second one."""


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
        cold_looks = 0
        while cold_looks < 2 and time.monotonic() < end:
            forget(path)
            cold_looks = 0 if _is_cached(path, most=0) else cold_looks + 1
            time.sleep(_PAUSE)


def _is_cached(path: str, most: float = 0.25) -> bool:
    """Whether more than `most` of some places of the file are in the page cache. False if that cannot be found out.

    The file is not read for it: even a read that does not wait makes the system read ahead.
    """
    mincore = getattr(ctypes.CDLL(None), "mincore", None)
    size = os.path.getsize(path)
    # Who neither owns a file nor may write to it is told that all of its pages are there.
    is_told = os.stat(path).st_uid == os.geteuid() or os.access(path, os.W_OK)
    if mincore is None or size == 0 or not is_told:
        return False
    pages = range(0, size, mmap.PAGESIZE)
    places = pages[:: max(len(pages) // _PLACES, 1)]
    # A private map that could be written to: ctypes gives no address of one that cannot. Nothing is written.
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        state = ctypes.c_ubyte()
        found = 0
        for place in places:
            address = ctypes.c_void_p(ctypes.addressof(first) + place)
            failed = mincore(address, ctypes.c_size_t(mmap.PAGESIZE), ctypes.byref(state))
            found += not failed and state.value & 1
        del first  # the map can be closed then
    return found > len(places) * most
