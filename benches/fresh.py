"""Every record once, in a new process: what a training worker does in its first epoch, with files in the page cache.

Other benchmarks read the same records again and again, so the process has long mapped their pages, and its heap has
room for the results. Here the clock also runs for opening the file, for the first touch of every page, and for fresh
memory that results are copied to. It does not run for imports.
"""

from __future__ import annotations

import gc
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benches.children import ask
from benches.dropins import FfrecordDropIn
from benches.goals import verdict
from benches.ours import Anyrecord, ours
from benches.outcomes import Outcome
from benches.peers import peers
from benches.ratios import Figures
from benches.results import Run
from benches.store import Store
from benches.stores import present
from benches.tables import number, show
from benches.timing import BATCH, check, each
from benches.workloads import WORKLOADS, Workload

WAYS = ("single", "batch", "in order")
LIMIT = "mmap slice"
"""Not a store, but what a plain Python program reaches."""
PLAIN = ("bagz raw", "lmdb", "array_record g1 none")
ZSTD = ("bagz zstd", "array_record g1 zstd")
OURS = {"anyrecord ffrecord": PLAIN, "anyrecord array g1 none": PLAIN, "anyrecord array g1 zstd": ZSTD}
"""What should be first, and among which stores."""
DROP_IN = "ffrecord drop-in"

BATCHES = Workload("6 KB", 200_000, 6_000, False)
"""Records of which a batch is larger than what the C library keeps of freed memory."""
OF_BATCHES = ("anyrecord ffrecord", "anyrecord array g1 none", LIMIT)
MOST_RECORDS, MOST_ROUNDS = 100_000, 2
"""More small records, and more rounds, would take too long: there is a process for each figure."""
LEAST = 1.0
"""How many times faster than the fastest other store."""
MOST_BATCH = 1.0
"""How many times as long as single reads batches may take."""
LARGE, MOST_IN_ORDER = "1 MB", 1.3
"""How many times as long as slices of a map an iteration over large records may take."""

SCRIPT = """
from benches.fresh import epoch
answer(microseconds=epoch(*sys.argv[1:]))
"""


class ReadsOurs(FfrecordDropIn):
    """The drop-in for `ffrecord`. It reads the file of anyrecord."""

    ways = WAYS


def main(run: Run) -> dict[str, Any]:
    """Prints microseconds a record for each size. Returns them by size, store and way."""
    rounds = min(run.rounds, MOST_ROUNDS)
    print("every record once, in a shuffled order or in order; a new process for each figure, page cache warm")
    print(f"microseconds a record, with opening the file; best of {rounds} interleaved rounds; batches of {BATCH}")
    print(f"{LIMIT} is not a store: it is what a loop in Python without checksums reaches\n")
    found: dict[str, Figures] = {}
    counts: dict[str, int] = {}
    for workload in [*WORKLOADS, BATCHES]:
        if run.only not in workload.name:
            continue
        records = workload.make(10 if run.quick else 1)
        names, ways = (OF_BATCHES, WAYS[:2]) if workload is BATCHES else (None, WAYS)
        if workload is not BATCHES:
            del records[MOST_RECORDS:]
        with tempfile.TemporaryDirectory(dir=run.folder) as folder:
            found[workload.name] = measure(stores(names), ways, records, Path(folder), rounds)
        counts[workload.name] = len(records)
        title = f"{len(records):,} records of about {workload.name}"
        rows = found[workload.name].items()
        show(title, ways, [(name, [number(row[way]) for way in ways]) for name, row in rows])
        compare(workload.name, found[workload.name], ways)
    return {"figures": found, "records": counts}


def stores(names: Sequence[str] | None = None) -> list[Store]:
    """The stores that are measured, or those with these names."""
    wanted = names or (LIMIT, *PLAIN, *ZSTD, *OURS, DROP_IN)
    known = {store.name: store for store in [*peers(), *ours(), ReadsOurs(DROP_IN, "ours.ffr")]}
    return present([known[name] for name in wanted])


def measure(stores: list[Store], ways: Sequence[str], records: list[bytes], folder: Path, rounds: int) -> Figures:
    """Writes the records with each store. Then reads them in new processes, all stores in turn."""
    for store in stores:
        store.settle(folder)
        is_there = isinstance(store, Anyrecord) and store.reads is not None and (folder / store.reads).exists()
        if store.writes() and not is_there:
            store.write(records)
    for store in stores:
        store.open()
        check(store, records)
        store.close()
    count = len(records)
    figures: Figures = {store.name: {} for store in stores}
    for _ in range(rounds):
        for way in ways:
            for store in stores:
                figure = ask(SCRIPT, store.name, folder, way, count)["microseconds"]
                figures[store.name][way] = min(figure, figures[store.name].get(way, figure))
    return figures


def epoch(name: str, folder: str, way: str, count: str) -> float:
    """Reads every record once. Returns microseconds a record. It runs in a new process."""
    (store,) = stores([name])
    store.settle(Path(folder))
    store.load()
    order = random.Random(11).sample(range(int(count)), int(count))
    jobs: dict[str, Callable[[], object]] = {
        "single": lambda: each(store.one, order),
        "batch": partial(each_batch, store, order),
        "in order": store.in_order,
    }
    read = jobs[way]
    gc.collect()
    begin = time.perf_counter()
    store.open()
    read()
    return (time.perf_counter() - begin) / int(count) * 1e6


def each_batch(store: Store, order: list[int]) -> None:
    for at in range(0, len(order), BATCH):
        store.batch(order[at : at + BATCH])


def fastest(figures: Figures, names: Sequence[str], way: str) -> float | None:
    """The fastest of some stores, of those that were measured."""
    return min((figures[name][way] for name in names if name in figures), default=None)


def compare(size: str, figures: Figures, ways: Sequence[str]) -> None:
    """Prints how many times faster we are than the fastest other store, and than slices of a map."""
    rows = []
    for name in [*OURS, DROP_IN]:
        if name not in figures:
            continue
        others, least = (OURS[name], LEAST) if name in OURS else (PLAIN, None)
        best = [fastest(figures, others, way) for way in ways]
        pairs = list(zip(best, ways, strict=True))
        if any(best):
            against = f"{name}, against the fastest of {', '.join(other for other in others if other in figures)}"
            rows.append((against, [verdict(b / figures[name][way], least) if b else "-" for b, way in pairs]))
        beside = [verdict(figures[LIMIT][way] / figures[name][way], None) for way in ways]
        rows.append((f"{name}, against {LIMIT}", beside))
    show("times faster", ways, rows)
    for outcome in outcomes({"figures": {size: figures}}):
        if "fastest" not in outcome.what:
            print(f"  {outcome}")
    print(flush=True)


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    for size, figures in found["figures"].items():
        for name, others in OURS.items():
            row = figures.get(name, {})
            for way, figure in row.items():
                best = fastest(figures, others, way)
                if best:
                    yield Outcome(f"{size}, {name}, {way}, against the fastest other store", best / figure, LEAST)
            if row:
                what = f"{size}, {name}: a record in a batch beside a single one"
                yield Outcome(what, row["batch"] / row["single"], MOST_BATCH, is_most=True)
        if size == LARGE:
            for name in ("anyrecord ffrecord", "anyrecord array g1 none"):
                if name in figures:
                    what = f"{size}, {name}: an iteration beside slices of a map"
                    ratio = figures[name]["in order"] / figures[LIMIT]["in order"]
                    yield Outcome(what, ratio, MOST_IN_ORDER, is_most=True)
