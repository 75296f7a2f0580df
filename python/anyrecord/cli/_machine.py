"""Facts about this machine that decide how fast reading is. What a system does not tell is None."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["cached_share", "cpu", "file_system", "io_uring", "memory", "open_files", "supports_direct"]

LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "f2fs", "zfs", "bcachefs", "squashfs", "erofs"}
)
"""The file systems whose files are memory-mapped by default. The core has the same list (`storage/file.rs`)."""

_FEATURES = ("sse4_2", "pclmulqdq", "avx2", "avx512f", "vpclmulqdq", "asimd", "crc32", "aes", "pmull", "sve")


def _text(path: str | Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text()
    return ""


def cpu() -> dict[str, Any]:
    """The processor, and how much of it this process may use."""
    info = _text("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", info, re.MULTILINE)
    there = set(flags[1].split()) if flags else set()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "model": model[1].strip() if model else platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": usable,
        "limit_cores": _least(_cpu_limit(group) for group in _groups()),
        "features": [feature for feature in _FEATURES if feature in there],
    }


def memory() -> dict[str, Any]:
    """The memory of the machine, and the limit of the control groups of this process."""
    numbers = {
        found[1]: int(found[2]) * 1024 for found in re.finditer(r"^(\w+):\s+(\d+) kB$", _text("/proc/meminfo"), re.M)
    }
    limit = _least(_number(_text(group / "memory.max")) for group in _groups())
    old = _number(_text("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
    if old is not None and old < 1 << 60:  # without a limit it is a very large number
        limit = _least([limit, old])
    return {
        "total_bytes": numbers.get("MemTotal"),
        "available_bytes": numbers.get("MemAvailable"),
        "page_cache_bytes": numbers.get("Cached"),
        "limit_bytes": limit,
        "shared_memory_bytes": _size_of_file_system("/dev/shm"),
    }


def _groups() -> list[Path]:
    """The control groups (version 2) of this process, from the innermost to the root."""
    for line in _text("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            inside = Path(line[3:].lstrip("/"))
            return [Path("/sys/fs/cgroup") / group for group in (inside, *inside.parents)]
    return []


def _cpu_limit(group: Path) -> float | None:
    quota, _, period = _text(group / "cpu.max").strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _least(numbers: Any) -> Any:
    return min((number for number in numbers if number is not None), default=None)


def _size_of_file_system(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except (OSError, AttributeError):
        return None
    return found.f_blocks * found.f_frsize


def open_files() -> tuple[int | None, int | None]:
    """How many files this process may have open: now, and at most."""
    try:
        import resource
    except ImportError:  # Windows
        return None, None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft, None if hard == resource.RLIM_INFINITY else hard


def io_uring() -> tuple[bool | None, str]:
    """Whether this process may use io_uring, and why not. Containers often forbid it."""
    if sys.platform != "linux":
        return None, "only Linux has it"
    import ctypes
    import errno

    libc = ctypes.CDLL(None, use_errno=True)
    parameters = (ctypes.c_char * 120)()
    handle = libc.syscall(425, 1, ctypes.byref(parameters))  # io_uring_setup; the number is that of all architectures
    if handle >= 0:
        os.close(handle)
        return True, ""
    code = ctypes.get_errno()
    if code == errno.ENOSYS:
        return False, "the kernel does not have it, or a container forbids it"
    setting = _text("/proc/sys/kernel/io_uring_disabled").strip()
    if setting in ("1", "2"):
        return False, f"the system forbids it (kernel.io_uring_disabled is {setting})"
    return False, f"the system refuses it: {os.strerror(code)}"


def file_system(path: str) -> tuple[str | None, str | None]:
    """The type of the file system of a file, and where it is mounted."""
    best, kind = "", None
    real = os.path.realpath(path)
    for line in _text("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4])
        # The last of several mounts at one place is the one that is seen.
        if len(mount) >= len(best) and (real == mount or real.startswith(mount.rstrip("/") + "/")):
            best, kind = mount, after.split(" ", 1)[0]
    return kind, best or None


def supports_direct(path: str) -> bool | None:
    """Whether a file can be read past the page cache, as `io="direct"` does."""
    if not hasattr(os, "O_DIRECT"):
        return None
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def cached_share(path: str) -> float | None:
    """How much of a file is in the page cache, from 0 to 1. None before Linux 6.5."""
    if sys.platform != "linux":
        return None
    import ctypes

    pages = (ctypes.c_uint64 * 5)()
    whole = (ctypes.c_uint64 * 2)(0, 0)
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        size = os.fstat(handle).st_size
        # cachestat
        if not size or ctypes.CDLL(None).syscall(451, handle, ctypes.byref(whole), ctypes.byref(pages), 0) != 0:
            return None
    finally:
        os.close(handle)
    page = os.sysconf("SC_PAGE_SIZE")
    return min(pages[0] / -(-size // page), 1.0)
