"""Many threads of one process that read at the same time: batches of 256 random records of 4 KB, warm.

Three ways: lists of `bytes`, `read_packed`, and `read_into` with a buffer for each thread. With `threads=1` each caller
works alone. With `threads=None`, threads of the core may help it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import anyrecord
from anyrecord import Records

from benches import machine
from benches.results import Run
from benches.tables import number, show
from benches.timing import BATCH

CALLERS = (1, 2, 4, 8, 16)
SIZE = 4096
BATCHES = 800
"""Different batches: more bytes than the processor's cache holds."""
SECONDS = 0.5
"""How long each measurement takes."""

Read = Callable[[Sequence[int]], object]


def main(run: Run) -> dict[str, Any]:
    """Prints millions of records a second by the number of callers. Returns records a second by way and callers."""
    path = run.folder / "callers.ffr"
    count = 50_000 if run.quick else 250_000
    with anyrecord.create(path, durable=False) as out:
        pool = random.Random(7).randbytes(1 << 20)
        out.write_many(pool[at : at + SIZE] for at in (i * 61 % (len(pool) - SIZE) for i in range(count)))
    found: dict[str, dict[str, float]] = {}
    chance = random.Random(11)
    batches = [[chance.randrange(count) for _ in range(BATCH)] for _ in range(BATCHES)]
    for _ in range(run.rounds):
        for threads in (1, None):
            with anyrecord.open(path, threads=threads) as records:
                touch(records)
                for way, make_read in WAYS.items():
                    row = found.setdefault(f"{way}, threads={threads}", {})
                    for callers in CALLERS:
                        rate = measured(records, make_read, batches, callers)
                        row[str(callers)] = max(rate, row.get(str(callers), 0.0))
    rows = [(name, [number(row[str(callers)] / 1e6) for callers in CALLERS]) for name, row in found.items()]
    title = f"million records/s of N callers, batches of {BATCH} random records of 4 KB; {machine.cores()} cores here"
    show(title, [str(callers) for callers in CALLERS], rows)
    path.unlink()
    return found


def as_lists(records: Records) -> Read:
    return records.__getitems__


def as_packed(records: Records) -> Read:
    return records.read_packed


def into_buffer(records: Records) -> Read:
    buffer = bytearray(BATCH * SIZE)
    return lambda batch: records.read_into(buffer, batch)


WAYS = {"lists": as_lists, "read_packed": as_packed, "read_into": into_buffer}


def touch(records: Records) -> None:
    """Reads every record once, so that its pages are mapped."""
    for _ in records.batches(1000, packed=True):
        pass


def measured(records: Records, make_read: Callable[[Records], Read], batches: list[list[int]], callers: int) -> float:
    """Records a second of all callers together."""
    counts, begins, ends = [0] * callers, [0.0] * callers, [0.0] * callers
    barrier = threading.Barrier(callers)

    def call(caller: int) -> None:
        read = make_read(records)
        read(batches[caller % len(batches)])
        barrier.wait()
        at, begins[caller] = caller * 7, time.perf_counter()
        while time.perf_counter() - begins[caller] < SECONDS:
            read(batches[at % len(batches)])
            at += 1
            counts[caller] += BATCH
        ends[caller] = time.perf_counter()

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (max(ends) - min(begins))
