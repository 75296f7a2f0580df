"""The disk alone: how fast it gives the same aligned ranges, past the page cache, at several depths.

Plain `preadv` with O_DIRECT from many threads in one process or a few, which needs no tool; Python's lock is free while
a thread waits. An interface with fewer calls, such as io_uring, may get a little more out of a very fast disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ALIGNED = 4096
DEPTHS = ((1, 1), (1, 4), (1, 16), (1, 32), (2, 16), (2, 32), (4, 32))
"""Processes, and threads in each."""

READER = """
import json, mmap, os, sys, threading, time
path, ranges, threads = sys.argv[1], json.load(open(sys.argv[2])), int(sys.argv[3])
descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
most = max(end - begin for begin, end in ranges)
def read(part, buffer):
    for begin, end in part:
        os.preadv(descriptor, [memoryview(buffer)[: end - begin]], begin)
jobs = [threading.Thread(target=read, args=(ranges[i::threads], mmap.mmap(-1, most))) for i in range(threads)]
print("ready", flush=True)
sys.stdin.readline()
begin = time.monotonic()
for job in jobs:
    job.start()
for job in jobs:
    job.join()
print(json.dumps([begin, time.monotonic()]))
"""


def aligned(begin: int, end: int) -> tuple[int, int]:
    """The blocks that hold a range.

    >>> aligned(5000, 9000)
    (4096, 12288)
    """
    return begin // ALIGNED * ALIGNED, -(-end // ALIGNED) * ALIGNED


def rates(path: Path, ranges: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Ranges a second, by depth. Empty where the file system has no O_DIRECT."""
    found = {}
    for processes, threads in DEPTHS:
        few = ranges if processes * threads > 1 else ranges[: max(1, len(ranges) // 8)]
        took = seconds(path, few, processes, threads)
        if took is None:
            return {}
        found[f"{processes} x {threads}"] = len(few) / took
    return found


def seconds(path: Path, ranges: Sequence[tuple[int, int]], processes: int, threads: int) -> float | None:
    """How long so many processes with so many threads take for all of them."""
    if not hasattr(os, "O_DIRECT"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for i in range(processes):
            wanted = Path(folder) / str(i)
            wanted.write_text(json.dumps(ranges[i::processes]))
            command = [sys.executable, "-c", READER, str(path), str(wanted), str(threads)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            children.append(subprocess.Popen(command, text=True, **pipes))  # type: ignore[call-overload]
        # All are ready, then all begin.
        started = [child.stdout.readline() for child in children]
        for child in children:
            if all(started):
                child.stdin.write("\n")
                child.stdin.flush()
        told = [child.communicate()[0] for child in children]
        if any(child.returncode != 0 for child in children):
            return None
        spans = [json.loads(line) for line in told]
    return float(max(end for _, end in spans) - min(begin for begin, _ in spans))
