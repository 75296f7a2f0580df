"""The page cache of the system: how files are made cold."""

from __future__ import annotations

import os
from pathlib import Path

DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def forget(path: Path) -> None:
    """Asks the system to drop a file from its cache; without that call, the file stays warm.

    Pages that are not on the disk yet, or that somebody has mapped, stay.
    """
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def forget_everything() -> bool:
    """Empties the page cache of the whole machine; False where that is not permitted."""
    try:
        os.sync()
        DROP_CACHES.write_text("1\n")
    except OSError:
        return False
    return True
