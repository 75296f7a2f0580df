"""Timing. Each round measures all stores, one after the other, so noise affects them equally. The best round counts."""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benches.ratios import Figures, better
from benches.store import Store

BATCH = 256
MOST_PICKS = 20_000
READ_ROUNDS = 2
"""How many rounds of reading there are for each round of writing. Reading takes less time."""


def measure(stores: list[Store], records: list[bytes], folder: Path, rounds: int, seconds: float = 0.5) -> Figures:
    """Writes and reads `records` with each store.

    `seconds`: about how long a round of random reads with one store may take. A slow store reads fewer records.
    """
    for store in stores:
        store.settle(folder)
        store.load()
    gc.collect()
    gc.freeze()  # the collector runs before each figure, and looking at all modules takes longer than most figures
    figures: Figures = {store.name: {} for store in stores}

    def note(store: Store, way: str, figure: float) -> None:
        best = figures[store.name].get(way)
        figures[store.name][way] = figure if best is None else better(way, best, figure)

    total = sum(map(len, records)) / 1e6
    for turn in range(rounds):
        for store in stores:
            for way, write in store.writes().items():
                if way == "durable":
                    if turn > 0:
                        continue  # once is enough: it is slow, and mostly measures the disk
                    flush(folder)
                store.remove()
                note(store, way, total / timed(partial(write, records)))
    flush(folder)
    for store in stores:
        figures[store.name]["size"] = store.stored_bytes() / total / 1e6
        store.open()
    jobs = [
        (store, way, job, count) for store in stores for way, (job, count) in reads(store, records, seconds).items()
    ]
    # Measure all stores in one way, then all in the next way.
    ways = dict.fromkeys(way for _, way, _, _ in jobs)
    for _ in range(READ_ROUNDS * rounds):
        for wanted in ways:
            for store, way, job, count in jobs:
                if way == wanted:
                    note(store, way, timed(job) / count * 1e6)
    for store in stores:
        store.close()
    gc.unfreeze()
    return figures


def reads(store: Store, records: list[bytes], seconds: float) -> dict[str, tuple[Callable[[], object], int]]:
    """The jobs to time for a store, by way, and how many records each job reads."""
    check(store, records)
    jobs: dict[str, tuple[Callable[[], object], int]] = {}
    picks = random_picks(len(records))
    if "single" in store.ways:
        few = enough(store.one, picks, seconds)
        jobs["single"] = partial(each, store.one, few), len(few)
    if "batch" in store.ways:
        batches = enough(store.batch, in_batches(picks), seconds)
        jobs["batch"] = partial(each, store.batch, batches), sum(map(len, batches))
    if "in order" in store.ways:
        jobs["in order"] = store.in_order, len(records)
    if "all" in store.ways:
        jobs["all"] = store.all, len(records)
    return jobs


def random_picks(length: int, seed: int = 11) -> list[int]:
    """Random record numbers, the same in every run."""
    chance = random.Random(seed)
    return [chance.randrange(length) for _ in range(MOST_PICKS)]


def in_batches(picks: list[int]) -> list[list[int]]:
    return [picks[i : i + BATCH] for i in range(0, len(picks) - BATCH + 1, BATCH)]


def enough(read: Callable[..., object], keys: list[Any], seconds: float) -> list[Any]:
    """The first keys, as many as take about `seconds` to read, at least two. It measures to find out how many."""
    tried = 1
    while True:
        took = timed(partial(each, read, keys[:tried]))
        if took * 4 > seconds or tried >= len(keys):
            break
        tried *= 4
    return keys[: max(2, int(tried * seconds / took))]


def each(read: Callable[..., object], keys: Sequence[Any]) -> None:
    for key in keys:
        read(key)


def timed(job: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def flush(folder: Path) -> None:
    """Waits until the files of a folder are on disk, so write-back does not disturb the next measurement."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


def check(store: Store, records: list[bytes]) -> None:
    """Checks that a store returns the right records. This also warms all parts of the file."""
    if "single" not in store.ways:
        return
    spread = list(range(0, len(records), max(1, len(records) // 16)))
    for index in spread:
        if as_bytes(store.one(index)) != records[index]:
            raise SystemExit(f"{store.name} returned a wrong record {index}")
    if "batch" in store.ways:
        batch: Any = store.batch(spread)
        if [as_bytes(record) for record in batch] != [records[index] for index in spread]:
            raise SystemExit(f"{store.name} returned a wrong batch")


def as_bytes(record: Any) -> bytes:
    """A record that may be an array of bytes."""
    return bytes(record)
