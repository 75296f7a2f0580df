"""Timing: all stores in each round, one after the other, so that noise hits them alike; the best round counts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benches.stores import Store

BATCH = 256
Figures = dict[str, dict[str, float]]
"""Microseconds for each record, by store and way of reading or writing."""


def measure(stores: list[type[Store]], records: list[bytes], folder: Path, rounds: int) -> Figures:
    """Writes and reads `records` with each store."""
    opened = [store(folder) for store in stores]
    chance = random.Random(11)
    picks = [chance.randrange(len(records)) for _ in range(min(len(records), 20_000))]
    batches = [picks[i : i + BATCH] for i in range(0, len(picks), BATCH)]
    best: Figures = {store.name: {} for store in opened}

    def note(store: Store, way: str, took: float, count: int) -> None:
        figure = took / count * 1e6
        best[store.name][way] = min(figure, best[store.name].get(way, figure))

    for _ in range(rounds):
        for store in opened:
            note(store, "write", timed(partial(store.write, records)), len(records))
    for store in opened:
        store.open()
        check(store, records)
    for _ in range(rounds):
        for store in opened:
            note(store, "single", timed(partial(each, store.one, picks)), len(picks))
        for store in opened:
            note(store, "batch", timed(partial(each, store.batch, batches)), len(picks))
        for store in opened:
            note(store, "in order", timed(store.in_order), len(records))
        for store in opened:
            note(store, "all", timed(store.all), len(records))
    for store in opened:
        store.close()
    return best


def each(read: Callable[..., object], keys: list[int] | list[list[int]]) -> None:
    for key in keys:
        read(key)


def timed(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def check(store: Store, records: list[bytes]) -> None:
    """A fast wrong answer is no answer."""
    for index in (0, len(records) // 2, len(records) - 1):
        if store.one(index) != records[index]:
            raise SystemExit(f"{store.name} gives a wrong record {index}")
