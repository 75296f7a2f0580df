"""A cold first epoch: every record once in random order, from files that are not in the page cache.

One process reads the epoch, or four worker processes share it: batch by batch in turn, as the workers of a PyTorch
`DataLoader` do. The reference is what a patient user can do: read the files once in order with large reads, then run
our epoch, now warm.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyrecord

from benches.children import ask, ask_together
from benches.cold import make_cold
from benches.goals import times
from benches.ours import Anyrecord
from benches.outcomes import Outcome, counted
from benches.page_cache import share_in_memory
from benches.peers import ArrayRecord, Bagz, Lmdb
from benches.results import Run
from benches.store import Store
from benches.stores import present
from benches.tables import number, show
from benches.timing import BATCH, check

TOTAL_BYTES = 2_000_000_000
SIZES = {"4 KB": 4_000, "100 KB": 100_000}
SHARDS = 16
WORKERS = (1, 4)
ROUNDS = 2
AT_ONCE = 8 << 20
"""Bytes of each read of the reference."""
WARM = 0.02
"""A file of which more is in the page cache is not cold."""
MOST = 1.3
"""How many times as long as the reference a cold epoch may take."""
MOST_FIRST = 0.1
"""Seconds until every worker has its first batch."""

READ_IN_ORDER = """
from benches.first_epoch import read_in_order
answer(seconds=read_in_order(sys.argv[1:]))
"""
EPOCH = """
from benches.first_epoch import epoch
answer(**epoch(ready, *sys.argv[1:]))
"""


class Shards(Anyrecord):
    """anyrecord with default options, in one file or in several."""

    def __init__(self, name: str, file: str, shards: int | None = None, **options: Any) -> None:
        super().__init__(name, file, **options)
        self.shards = shards

    def write(self, records: list[bytes], durable: bool = False) -> None:
        with anyrecord.create(self.path, durable=durable, shards=self.shards, **self.options) as out:
            out.write_many(records)

    def open(self) -> None:
        self.records = anyrecord.open(f"{self.path}@{self.shards}" if self.shards else self.path)


class BagzSingly(Bagz):
    """Its batches take longer than single reads."""

    ways = ("single",)


class OriginalArrayRecord(ArrayRecord):
    """It reads the file of anyrecord."""

    ways = ("single", "batch")


def stores() -> list[Store]:
    """Ours, then the others. LMDB once as elsewhere, and once with read-ahead, which is its default."""
    plain: dict[str, Any] = {"codec": "none", "group_size": 1}
    return [
        Shards("anyrecord ffrecord", "one.ffr"),
        Shards(f"anyrecord ffrecord, {SHARDS} files", "many.ffr", SHARDS),
        Shards("anyrecord array g1 none", "one.array_record", **plain),
        Shards(f"anyrecord array g1 none, {SHARDS} files", "many.array_record", SHARDS, **plain),
        BagzSingly("bagz", "raw.bag"),
        Lmdb("lmdb", "lmdb"),
        Lmdb("lmdb, read-ahead", "lmdb", readahead=True),
        OriginalArrayRecord("array_record", "one.array_record", "group_size:1,uncompressed"),
    ]


WRITTEN_BY_ANOTHER = ("lmdb, read-ahead", "array_record")


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    store: Store
    way: str
    workers: int

    @property
    def is_ours(self) -> bool:
        return isinstance(self.store, Shards)


def main(run: Run) -> dict[str, Any] | None:
    """Prints a table for each size and the goals. Returns seconds by size, store, way and number of workers."""
    print("every record once in random order; the files are removed from the page cache before each epoch")
    print(f"{WORKERS[-1]} workers: processes that share the epoch, batch by batch; batches of {BATCH}")
    print("first: seconds until every worker has its first batch")
    print("reference: reading the files once in order, plus our epoch from the page cache\n")
    found = {}
    for size, record_bytes in SIZES.items():
        if run.only in size:
            count = TOTAL_BYTES // record_bytes // (10 if run.quick else 1)
            with tempfile.TemporaryDirectory(dir=run.folder) as folder:
                rows = measure(run, Path(folder), count, record_bytes)
            found[size] = {"records": count, "record_bytes": record_bytes, "rows": rows}
            report(size, found[size])
    return found


def measure(run: Run, folder: Path, count: int, record_bytes: int) -> dict[str, Any]:
    records = make(count, record_bytes)
    here = present(stores())
    for store in here:
        store.settle(folder)
        if store.name not in WRITTEN_BY_ANOTHER:
            store.write(records)
    for store in here:
        store.open()
        if not (isinstance(store, Shards) and store.shards):  # shards take turns, so numbers are other ones there
            check(store, records)
        elif len(store.records) != count:
            raise SystemExit(f"{store.name} has {len(store.records)} of {count} records")
        store.close()
    cells = [Cell(store, way, workers) for store in here for way in READS if way in store.ways for workers in WORKERS]
    rows: dict[str, Any] = {}
    for _ in range(min(run.rounds, ROUNDS)):
        for cell in cells:
            row = rows.setdefault(cell.store.name, {}).setdefault(cell.way, {}).setdefault(str(cell.workers), {})
            for what, figure in once(run, cell, count).items():
                row[what] = min(figure, row.get(what, figure))
    return rows


READS = ("single", "batch")


def make(count: int, record_bytes: int) -> list[bytes]:
    """Records that cannot be compressed. There are only a few different ones, so that memory does not hold them all."""
    chance = random.Random(7)
    different = [chance.randbytes(record_bytes) for _ in range(499)]
    return [different[number % len(different)] for number in range(count)]


def once(run: Run, cell: Cell, count: int) -> dict[str, float]:
    """A cold epoch. For ours also the two parts of the reference."""
    files = files_of(cell.store)
    make_all_cold(run, files)
    found = read_epoch(cell, count)
    if cell.is_ours:
        make_all_cold(run, files)
        found["read"] = ask(READ_IN_ORDER, *files)["seconds"]
        found["warm"] = read_epoch(cell, count)["seconds"]
    return found


def files_of(store: Store) -> list[Path]:
    if isinstance(store, Shards) and store.shards:
        return sorted(store.path.parent.glob(f"{store.path.stem}-*{store.path.suffix}"))
    return sorted(store.path.iterdir()) if store.path.is_dir() else [store.path]


def make_all_cold(run: Run, files: Sequence[Path]) -> None:
    for path in files:
        make_cold(run, path)
        share = share_in_memory(path)
        if share is not None and share > WARM:
            raise SystemExit(f"{share:.0%} of {path} stay in the page cache: choose a folder on a disk with --folder")


def read_epoch(cell: Cell, count: int) -> dict[str, float]:
    """Seconds from the first worker's beginning to the last worker's end, and until each has its first batch."""
    store = cell.store
    calls = [(store.name, store.path.parent, cell.way, count, rank, cell.workers) for rank in range(cell.workers)]
    answers = ask_together(EPOCH, calls)
    begin = min(answer["begin"] for answer in answers)  # the clock is the same one in all processes
    return {
        "seconds": max(answer["end"] for answer in answers) - begin,
        "first": max(answer["first"] for answer in answers) - begin,
    }


def epoch(
    ready: Callable[[], None], name: str, folder: str, way: str, count: str, rank: str, workers: str
) -> dict[str, float]:
    """Reads the batches of one worker. It runs in a process of its own."""
    store = next(store for store in stores() if store.name == name)
    store.settle(Path(folder))
    store.load()
    order = random.Random(11).sample(range(int(count)), int(count))
    batches = [order[at : at + BATCH] for at in range(0, len(order), BATCH)][int(rank) :: int(workers)]
    read: Callable[[list[int]], object] = partial(one_by_one, store) if way == "single" else store.batch
    ready()
    begin = first = time.perf_counter()
    store.open()
    for number_of_batch, batch in enumerate(batches):
        read(batch)
        if number_of_batch == 0:
            first = time.perf_counter()
    return {"begin": begin, "first": first, "end": time.perf_counter()}


def one_by_one(store: Store, batch: list[int]) -> None:
    for index in batch:
        store.one(index)


def read_in_order(files: Sequence[str]) -> float:
    """Reads whole files with large reads. Returns the seconds."""
    buffer = bytearray(AT_ONCE)
    begin = time.perf_counter()
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        while os.readv(descriptor, [buffer]):
            pass
        os.close(descriptor)
    return time.perf_counter() - begin


def microseconds(found: dict[str, Any], row: dict[str, float]) -> float:
    return row["seconds"] / float(found["records"]) * 1e6


def reference(row: dict[str, float]) -> float:
    """Seconds that the reference takes."""
    return row["read"] + row["warm"]


def processes(count: int) -> str:
    """
    >>> processes(1), processes(4)
    ('1 process', '4 processes')
    """
    return f"{count} process" if count == 1 else f"{count} processes"


def columns() -> list[str]:
    return [
        f"{processes(workers)}, {what}"
        for workers in WORKERS
        for what in ("us a record", "of the reference", "first, s")
    ]


def table(found: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """A row for each store and way."""
    rows = []
    for name, ways in found["rows"].items():
        for way, by_workers in ways.items():
            cells = []
            for workers in WORKERS:
                row = by_workers[str(workers)]
                share = times(row["seconds"] / reference(row)) if "warm" in row else "-"
                cells += [number(microseconds(found, row)), share, number(row["first"])]
            rows.append((f"{name}, {'one at a time' if way == 'single' else f'batches of {BATCH}'}", cells))
    return rows


def report(size: str, found: dict[str, Any]) -> None:
    total = found["records"] * found["record_bytes"] / 1e6
    show(f"{found['records']:,} records of {size}, {total:,.0f} MB", columns(), table(found))
    goals = list(outcomes({size: found}))
    print(f"  goals: {counted(goals)}")
    for outcome in goals:
        if not outcome.is_reached:
            print(f"  {outcome}")
    print(flush=True)


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    for size, of_size in found.items():
        rows = of_size["rows"]
        for name, ways in rows.items():
            if not name.startswith("anyrecord"):
                continue
            for way, by_workers in ways.items():
                for workers, row in by_workers.items():
                    what = f"{size}, {name}, {way}, {processes(int(workers))}"
                    yield Outcome(f"{what}: of the reference", row["seconds"] / reference(row), MOST, is_most=True)
                    yield Outcome(f"{what}: first batch", row["first"], MOST_FIRST, is_most=True, unit=" s")
                    others = [
                        theirs[way][workers]["seconds"]
                        for peer, theirs in rows.items()
                        if not peer.startswith("anyrecord") and way in theirs
                    ]
                    if others:
                        yield Outcome(f"{what}: against the fastest peer", min(others) / row["seconds"], 1.0)
