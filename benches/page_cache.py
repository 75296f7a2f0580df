"""Removes files from the page cache, and tells how much of a file is in it."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def forget(path: Path) -> None:
    """Asks the system to drop a file from the page cache. If the system has no such call, the file stays in it.

    Pages that are not on disk yet, or that a process has mapped, stay in the cache.
    """
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def forget_everything() -> bool:
    """Empties the page cache of the whole machine. Returns False if that is not permitted."""
    try:
        os.sync()
        DROP_CACHES.write_text("1\n")
    except OSError:
        return False
    return True


def share_in_memory(path: Path) -> float | None:
    """How much of a file is in the page cache, from 0 to 1. None if the system does not tell."""
    mincore = getattr(ctypes.CDLL(None, use_errno=True), "mincore", None)
    size = path.stat().st_size
    if mincore is None or size == 0:
        return None
    pages = -(-size // mmap.PAGESIZE)
    states = (ctypes.c_ubyte * pages)()
    # A private map that could be written to: ctypes gives no address of one that cannot. Nothing is written.
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        failed = mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), states)
        del first
    return None if failed else sum(state & 1 for state in states) / pages
