"""What `durable=True`, the default, costs: files of 1 GB, the seconds until `close` returned, beside `durable=False`.

The disk must write every byte of a durable file. So a plain loop of `os.write` is measured in the same rounds, beside
one that also lets the disk write early and waits for it. If even that takes longer than the goal allows, no writer can
reach the goal on this disk, and durable files are compared with that loop.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyrecord

from benches.outcomes import Outcome
from benches.results import Run
from benches.tables import number, show

TOTAL_BYTES = 1_000_000_000
SIZES = {"4 KB": 4_000, "100 KB": 100_000, "1 MB": 1_000_000}
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "ffrecord": ("a.ffr", {"num_records": 0}),
    "ffrecord, unknown number": ("a.ffr", {}),
    "array none": ("a.array_record", {"codec": "none", "group_size": 1}),
    "array zstd": ("a.array_record", {"codec": "zstd", "group_size": 1}),
    "recordio": ("a.recordio", {"codec": "none"}),
    "tfrecord": ("a.tfrecord", {}),
    "tfrecord, 8 shards in turn": ("a.tfrecord", {"shards": 8}),
    "tfrecord, shards of 128 MB": ("a.tfrecord", {"shard_bytes": 128_000_000}),
}
MORE_ROUNDS = 2
"""A file takes less than a second, so there are more rounds than in other benchmarks."""
MOST = 1.25
"""How many times as long a durable file may take."""
PIECE, BLOCK = 8 << 20, 256 << 10
"""The disk is asked to write a piece; a plain write is a block. Larger writes take larger pages, which a virtual
machine may have to get from its host. That takes several times as long as the write."""
PLAIN, SYNCED, EARLY = "os.write", "os.write, then fsync", "os.write, sync_file_range, then fsync"
WAYS = {"not durable": False, "durable": True}


def main(run: Run) -> dict[str, Any]:
    """Prints a table for each size. Returns seconds by size, file and way, and those of the disk."""
    total, rounds = TOTAL_BYTES // (10 if run.quick else 1), run.rounds + MORE_ROUNDS
    print(f"seconds until close() returned, for {total / 1e6:,.0f} MB that no codec makes smaller")
    print(f"best of {rounds} interleaved rounds; before each file, the disk is idle and the last file deleted\n")
    pool = random.Random(7).randbytes(PIECE)
    folder = run.folder / "durable"
    disk: dict[str, float] = {}
    found: dict[str, Any] = {"figures": {}, "disk": disk, "bytes": total}
    for name, size in SIZES.items():
        if run.only not in name:
            continue
        figures: dict[str, dict[str, float]] = {file: {} for file in FILES}
        for _ in range(rounds):
            for way, job in raw_jobs(pool, total).items():
                keep_best(disk, way, clocked(job, folder))
            for file, row in figures.items():
                for way, durable in WAYS.items():
                    keep_best(row, way, clocked(partial(write, file, pool, size, total, durable), folder))
        found["figures"][name] = figures
        rows = [(file, [number(row[way]) for way in WAYS] + [compared(row, disk)]) for file, row in figures.items()]
        show(f"records of {name}", [*WAYS, "times as long"], rows)
    rates = [(way, [number(took), number(total / took / 1e6)]) for way, took in disk.items()]
    show("without a format", ["seconds", "MB/s"], rates)
    return found


def keep_best(row: dict[str, float], way: str, seconds: float) -> None:
    row[way] = min(seconds, row.get(way, seconds))


def clocked(job: Callable[[Path], object], folder: Path) -> float:
    """Runs a job in an empty folder, when nothing of earlier files is left to write. Returns its seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.sync()
    gc.collect()
    begin = time.perf_counter()
    job(folder)
    took = time.perf_counter() - begin
    shutil.rmtree(folder)
    return took


def write(file: str, pool: bytes, size: int, total: int, durable: bool, folder: Path) -> None:
    name, options = FILES[file]
    count = total // size
    if "num_records" in options:
        options = {**options, "num_records": count}
    batch = [pool[at : at + size] for at in range(0, len(pool) - size + 1, size)]
    with anyrecord.create(folder / name, durable=durable, **options) as out:
        for begin in range(0, count, len(batch)):
            out.write_many(batch[: count - begin])


def raw_jobs(pool: bytes, total: int) -> dict[str, Callable[[Path], object]]:
    """Writes as many bytes by plain calls: into the page cache, then to the disk, and both at once where that works."""
    jobs: dict[str, Callable[[Path], object]] = {
        PLAIN: lambda folder: raw(folder, pool, total),
        SYNCED: lambda folder: raw(folder, pool, total, os.fsync),
    }
    if sys.platform == "linux":
        call = ctypes.CDLL(None).sync_file_range
        call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
        jobs[EARLY] = lambda folder: raw(folder, pool, total, os.fsync, lambda file, at: call(file, at, PIECE, 2))
    return jobs


def raw(
    folder: Path,
    pool: bytes,
    total: int,
    sync: Callable[[int], object] = lambda _: None,
    start: Callable[[int, int], object] = lambda _, __: None,
) -> None:
    blocks = [pool[at : at + BLOCK] for at in range(0, PIECE, BLOCK)]
    descriptor = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT)
    try:
        for at in range(0, total, PIECE):
            for block in blocks:
                if os.write(descriptor, block) != BLOCK:
                    raise SystemExit("the disk is full")
            start(descriptor, at)
        sync(descriptor)
    finally:
        os.close(descriptor)


def limit(row: dict[str, float], disk: dict[str, float]) -> float:
    """What a durable file is compared with: one that is not durable, or the disk if it cannot reach the goal.

    >>> limit({"not durable": 0.5}, {SYNCED: 0.9, EARLY: 0.6}), limit({"not durable": 0.5}, {SYNCED: 2.1, EARLY: 2.0})
    (0.5, 2.0)
    """
    least = min(disk[way] for way in (SYNCED, EARLY) if way in disk)
    return least if least > MOST * row["not durable"] else row["not durable"]


def compared(row: dict[str, float], disk: dict[str, float]) -> str:
    ratio = row["durable"] / row["not durable"]
    least = limit(row, disk)
    return f"{ratio:.2f}" if least == row["not durable"] else f"{ratio:.2f}; the disk: {row['durable'] / least:.2f}"


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    disk = found["disk"]
    for size, figures in found["figures"].items():
        for file, row in figures.items():
            least = limit(row, disk)
            beside = "not durable" if least == row["not durable"] else "the disk, which cannot reach the goal"
            yield Outcome(f"{size}, {file}: durable beside {beside}", row["durable"] / least, MOST, is_most=True)
