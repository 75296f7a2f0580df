"""Removes files from the page cache."""

from __future__ import annotations

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
