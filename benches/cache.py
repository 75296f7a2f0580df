"""The second epoch from the local cache (`cache=`), beside the same file opened locally."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import anyrecord
from anyrecord import Records, _core

from benches.outcomes import Outcome
from benches.results import Run
from benches.tables import number, show
from benches.timing import BATCH, each, in_batches, timed
from benches.workloads import WORKLOADS

FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "ffrecord": (".ffr", {}),
    "array_record, one record a chunk": (".array_record", {"codec": "none", "group_size": 1}),
    "array_record, zstd": (".array_record", {}),
    "recordio": (".recordio", {}),
    "tfrecord": (".tfrecord", {}),
}
SIZES = ("4 KB", "100 KB")
GOAL = 0.9
"""The second epoch should have so much of the speed of a local file, at least."""
ROUNDS = 10
"""Rounds of reading for each round. Both are read in turn, so that noise affects them equally."""
COLUMNS = ("local", "cache", "of local")


def main(run: Run) -> dict[str, Any]:
    """Prints and returns microseconds a record, by size, format and way."""
    found: dict[str, Any] = {}
    for workload in WORKLOADS:
        if workload.name not in SIZES or run.only not in workload.name:
            continue
        records = workload.make(10 if run.quick else 1)
        rows = {}
        for name, (suffix, options) in FILES.items():
            for way, figures in measure(run, records, suffix, options).items():
                rows[f"{name}: {way}"] = figures
        found[workload.name] = rows
        title = f"{len(records):,} records of {workload.name}, microseconds a record (goal: {GOAL:.0%} of local)"
        show(title, COLUMNS, [(name, cells(**figures)) for name, figures in rows.items()])
        missed = [name for name, figures in rows.items() if share(**figures) < GOAL and "in order" not in name]
        print(f"  goal {'missed: ' + ', '.join(missed) if missed else 'reached'}\n", flush=True)
    return found


def share(local: float, cache: float) -> float:
    return local / cache


def cells(local: float, cache: float) -> list[str]:
    return [number(local), number(cache), f"{share(local, cache):.0%}"]


def measure(run: Run, records: list[bytes], suffix: str, options: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The best times of each way to read an epoch, in microseconds a record."""
    path, url, folder = run.folder / f"a{suffix}", f"memory://cache/a{suffix}", run.folder / "cache"
    with anyrecord.create(path, durable=False, overwrite=True, **options) as out:
        out.write_many(records)
    _core.put_object(url, path.read_bytes(), [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # files without a table are searched
        cached = anyrecord.open(url, cache=folder, cache_bytes=0)
        local = anyrecord.open(path, cache_bytes=0)
    for first_epoch in (cached, local):
        if list(first_epoch) != records:
            raise SystemExit(f"wrong records of {path}")
    misses = cached.stats().cache_misses
    figures: dict[str, dict[str, float]] = {}
    for way, job in ways(len(records)).items():
        best = dict.fromkeys(("local", "cache"), float("inf"))
        for _ in range(ROUNDS * run.rounds):
            for name, opened in (("local", local), ("cache", cached)):
                best[name] = min(best[name], timed(partial(job, opened)) / len(records) * 1e6)
        figures[way] = best
    if cached.stats().cache_misses != misses:
        raise SystemExit("the second epoch was not from the cache")
    cached.close()
    local.close()
    path.unlink()
    return figures


def ways(length: int) -> dict[str, Callable[[Records], None]]:
    """Each reads all records once: at random by itself, at random in batches, and in order."""
    order = random.Random(11).sample(range(length), length)
    batches = [*in_batches(order), order[length - length % BATCH :]]
    return {
        "single": lambda opened: each(opened.__getitem__, order),
        f"batches of {BATCH}": lambda opened: each(opened.__getitem__, batches),
        "in order": lambda opened: each(lambda _: None, list(opened)),
    }


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    for size, rows in found.items():
        for name, row in rows.items():
            if "in order" not in name:
                yield Outcome(f"{size}, {name}: of the speed of local files", share(**row), GOAL, unit="%")
