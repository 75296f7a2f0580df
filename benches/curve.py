"""The cost of a read by file length, from a thousand to ten million records. The curve should be flat."""

from __future__ import annotations

import array
from functools import partial
from typing import Any

from benches import numbered
from benches.ours import Anyrecord
from benches.peers import ArrayRecord, ArrayRecordSource, MmapSlice
from benches.results import Run
from benches.store import Store
from benches.stores import present
from benches.tables import number, show
from benches.timing import each, enough, in_batches, random_picks, timed

WAYS = ("single", "batch")
SECONDS = 0.3
"""About how long one store is read in one round, in seconds."""


def main(run: Run) -> dict[str, Any]:
    """Prints microseconds a record by length of the file. Returns them by way, store and length."""
    lengths = numbered.lengths(run)
    found: dict[str, dict[str, dict[str, float]]] = {way: {} for way in WAYS}
    for length in lengths:
        for way, stores in measure(run, length).items():
            for store, figure in stores.items():
                found[way].setdefault(store, {})[str(length)] = figure
    for way in WAYS:
        rows = [(store, [number(by.get(str(length))) for length in lengths]) for store, by in found[way].items()]
        title = (
            f"{way}, microseconds a record, by the number of records ({numbered.RECORD_BYTES} bytes each) in the file"
        )
        show(title, [f"{length:,}" for length in lengths], rows)
        ours, loop = found[way]["anyrecord"], found[way]["mmap slice"]
        first, last = str(lengths[0]), str(lengths[-1])
        grown, loop_grown = ours[last] / ours[first], loop[last] / loop[first]
        print(f"  from {lengths[0]:,} to {lengths[-1]:,} records: {grown:.2f}x; the mmap-slice loop {loop_grown:.2f}x")
        if way == "single":
            print("  (array_record: seek and read, no threads)")
        print("  (both grow because of misses in the processor's caches; `instructions` does not depend on them)\n")
    return {"record_bytes": numbered.RECORD_BYTES, "microseconds": found}


def measure(run: Run, length: int) -> dict[str, dict[str, float]]:
    """Microseconds a record by way and store."""
    path, raw = numbered.array_record(run, length), numbered.raw(run, length)
    ends = array.array("Q", range(0, (length + 1) * numbered.RECORD_BYTES, numbered.RECORD_BYTES))
    raw.with_suffix(".ends").write_bytes(ends)
    stores: list[Store] = [
        Anyrecord("anyrecord", path.name),
        MmapSlice("mmap slice", raw.name),
        ArrayRecord("array_record", path.name, ""),
        ArrayRecordSource("array_record data source", path.name),
    ]
    stores = present(stores)
    picks = random_picks(length)
    jobs: list[tuple[str, Store, Any, list[Any]]] = []
    for store in stores:
        store.settle(run.folder)
        store.open()
        if store.one(length - 1) != numbered.record(length - 1):
            raise SystemExit(f"{store.name} returned a wrong record")
        jobs.append(("single", store, store.one, enough(store.one, picks, SECONDS)))
        jobs.append(("batch", store, store.batch, enough(store.batch, in_batches(picks), SECONDS)))
    best: dict[str, dict[str, float]] = {way: {} for way in WAYS}
    for _ in range(run.rounds):
        for way, store, read, keys in jobs:
            count = len(keys) if way == "single" else sum(map(len, keys))
            figure = timed(partial(each, read, keys)) / count * 1e6
            best[way][store.name] = min(figure, best[way].get(store.name, figure))
    for store in stores:
        store.close()
    return best
