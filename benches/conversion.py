"""Conversion of one large file: speed and memory, compared with a plain loop that calls the original's writer.

Each way runs in a separate process, to measure its peak memory.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyrecord

from benches.results import Run

RECORD_BYTES = 1000

LOOP = """
from array_record.python.array_record_module import ArrayRecordWriter

def job(source, target):
    writer = ArrayRecordWriter(target, "group_size:1,zstd:3")
    # Opened as a file object, because the pages of a mapped file would count as memory.
    with open(source, "rb") as file:
        for record in anyrecord.open(file):
            writer.write(record)
    writer.close()
"""

OURS = """
def job(source, target, verify, threads):
    anyrecord.convert(source, target, durable=False, verify=verify == "verified", threads=int(threads) or None)
"""

TIMED = """
import re, sys, time
import anyrecord
{}
begin = time.perf_counter()
job(*sys.argv[1:])
# Not from getrusage: its peak includes the memory of the parent process.
with open("/proc/self/status") as status:
    print(time.perf_counter() - begin, re.search(r"VmHWM:\\s+([0-9]+)", status.read())[1])
"""


@dataclass(frozen=True)
class Way:
    """One way to convert a file."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()


WAYS = [
    Way("original: loop over its writer", LOOP),
    Way("anyrecord.convert, one thread, not verified", OURS, ("unverified", "1")),
    Way("anyrecord.convert, not verified", OURS, ("unverified", "0")),
    Way("anyrecord.convert", OURS, ("verified", "0")),
]


def main(run: Run) -> dict[str, Any]:
    """Prints a table: seconds, MB of records a second, and peak memory in MB."""
    with tempfile.TemporaryDirectory(dir=run.folder) as folder:
        return report(Path(folder), 100_000_000 if run.quick else 1_000_000_000)


def report(folder: Path, total_bytes: int) -> dict[str, Any]:
    source = folder / "source.tfrecord"
    make(source, total_bytes)
    print(
        f"TFRecord to ArrayRecord (zstd, group_size=1), {total_bytes / 1e9:.2f} GB in records of {RECORD_BYTES} bytes"
    )
    print(f"  {'':<44} {'seconds':>8} {'MB/s':>6} {'peak MB':>8}")
    found: dict[str, Any] = {}
    for way in WAYS:
        target = folder / "target.array_record"
        seconds, peak = measure(way, source, target)
        if len(anyrecord.open(target)) != total_bytes // RECORD_BYTES:
            raise SystemExit(f"{way.name} lost records")
        target.unlink()
        print(f"  {way.name:<44} {seconds:>8.2f} {total_bytes / seconds / 1e6:>6.0f} {peak / 1024:>8.0f}")
        found[way.name] = {"seconds": seconds, "MB/s": total_bytes / seconds / 1e6, "peak MB": peak / 1024}
    source.unlink()
    print()
    return found


def make(path: Path, total_bytes: int) -> None:
    """Writes a file of text that compresses about as well as natural text."""
    chance = random.Random(7)
    letters = b"abcdefghijklmnopqrstuvwxyz"
    words = [bytes(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(4000)]
    pool = b" ".join(chance.choices(words, k=1_000_000))
    with anyrecord.create(path, durable=False) as out:
        for number in range(total_bytes // RECORD_BYTES):
            at = number * 7919 % (len(pool) - RECORD_BYTES)
            out.write(pool[at : at + RECORD_BYTES])


def measure(way: Way, source: Path, target: Path) -> tuple[float, int]:
    """Seconds, and peak memory in KB."""
    command = [sys.executable, "-c", TIMED.format(way.script), str(source), str(target), *way.arguments]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(printed[0]), int(printed[1])
