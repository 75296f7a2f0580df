"""What `durable=True`, the default, costs: files of 1 GB, the seconds until `close` returned, beside `durable=False`.

The disk must write every byte of a durable file, so its own time is measured in the same rounds. Where the disk takes
longer than a writer that does not wait, no writer can do better than the disk, and the goal is counted from there.
"""

from __future__ import annotations

import gc
import mmap
import os
import random
import shutil
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
BLOCK = 8 << 20
PLAIN_BLOCK = 1 << 20
"""Larger writes take larger pages. A system that has not used such pages for a while is slow to give them."""
PLAIN, SYNCED, DIRECT = "os.write", "os.write, then fsync", "the disk (O_DIRECT)"
WAYS = {"not durable": False, "durable": True}


def main(run: Run) -> dict[str, Any]:
    """Prints a table for each size. Returns seconds by size, file and way, and those of the disk."""
    total, rounds = TOTAL_BYTES // (10 if run.quick else 1), run.rounds + MORE_ROUNDS
    print(f"seconds until close() returned, for {total / 1e6:,.0f} MB that no codec makes smaller")
    print(f"best of {rounds} interleaved rounds; before each file, the disk is idle and the last file deleted\n")
    pool = random.Random(7).randbytes(BLOCK)
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
    """Writes as many bytes by plain calls. The last one is the time of the disk alone, where there is O_DIRECT."""
    jobs: dict[str, Callable[[Path], object]] = {
        PLAIN: lambda folder: raw(folder, pool[:PLAIN_BLOCK], total, 0, is_synced=False),
        SYNCED: lambda folder: raw(folder, pool[:PLAIN_BLOCK], total, 0, is_synced=True),
    }
    if hasattr(os, "O_DIRECT"):
        aligned = mmap.mmap(-1, len(pool))
        aligned[:] = pool
        jobs[DIRECT] = lambda folder: raw(folder, aligned, total, os.O_DIRECT, is_synced=True)
    return jobs


def raw(folder: Path, block: bytes | mmap.mmap, total: int, flags: int, is_synced: bool) -> None:
    descriptor = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | flags)
    try:
        for _ in range(-(-total // len(block))):
            if os.write(descriptor, block) != len(block):
                raise SystemExit("the disk is full")
        if is_synced:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def limit(row: dict[str, float], disk: dict[str, float]) -> float:
    """What a durable file takes at least: as long as one that is not, and as long as the disk.

    >>> limit({"not durable": 0.5}, {DIRECT: 2.0}), limit({"not durable": 0.5}, {})
    (2.0, 0.5)
    """
    return max(row["not durable"], disk.get(DIRECT, 0.0))


def compared(row: dict[str, float], disk: dict[str, float]) -> str:
    ratio = row["durable"] / row["not durable"]
    least = limit(row, disk)
    return f"{ratio:.2f}" if least == row["not durable"] else f"{ratio:.2f}; the disk: {row['durable'] / least:.2f}"


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    disk = found["disk"]
    for size, figures in found["figures"].items():
        for file, row in figures.items():
            least = limit(row, disk)
            beside = "not durable" if least == row["not durable"] else "the disk, which is slower than not durable"
            yield Outcome(f"{size}, {file}: durable beside {beside}", row["durable"] / least, MOST, is_most=True)
