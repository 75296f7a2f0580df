"""Describes the machine, and the versions of the measured packages."""

from __future__ import annotations

import datetime
import os
import platform
import re
from contextlib import suppress
from importlib import metadata
from pathlib import Path

PACKAGES = ("anyrecord", "array_record", "bagz", "grain", "lmdb", "numpy", "tfrecord")


def describe(folder: Path) -> dict[str, str]:
    """Everything that the figures depend on. `folder` holds the files."""
    return {
        "cpu": processor(),
        "cores": str(cores()),
        "memory": f"{memory_bytes() / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "filesystem": filesystem(folder),
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {version}" for name in PACKAGES if (version := installed(name))),
    }


def file_name(described: dict[str, str]) -> str:
    """A short name for the results of a machine: a word of its processor, and its cores.

    >>> file_name({"cpu": "AMD EPYC", "cores": "2"}), file_name({"cpu": "Intel(R) Xeon(R) Processor", "cores": "16"})
    ('epyc-2', 'xeon-16')
    """
    words = re.findall(r"[a-z]{3,}", described["cpu"].lower())
    telling = [word for word in words if word not in ("amd", "intel", "gen", "processor", "cpu")]
    return f"{(telling or ['machine'])[0]}-{described['cores']}"


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def today() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def processor() -> str:
    """The processor, as the system names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def available_bytes() -> int:
    """The memory that can be used, page cache included, as far as the system or a container says it."""
    known = [memory_bytes()]
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                known.append(1024 * int(line.split()[1]))
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" is no limit
            known.append(int((Path("/sys/fs/cgroup") / limit).read_text()))
    return min(known)


def filesystem(folder: Path) -> str:
    """The kind of file system that holds a folder."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    place = folder.resolve()
    held = [(mount[1], mount[2]) for mount in mounts if place.is_relative_to(mount[1])]
    return max(held, key=lambda mount: len(mount[0]), default=("", "unknown"))[1]


def installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
