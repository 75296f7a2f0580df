"""Measures every store at every size, then prints how many times faster anyrecord is, compared with the goals."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benches import elsewhere
from benches.dropins import dropins
from benches.goals import goal, verdict
from benches.ours import ours
from benches.outcomes import Outcome, counted
from benches.peers import peers
from benches.ratios import COMPARISONS, FASTEST, STORES, Figures, ratios
from benches.results import Run
from benches.store import READS, WRITES, Store
from benches.tables import number, show
from benches.timing import READ_ROUNDS, measure
from benches.workloads import WORKLOADS

COLUMNS = {
    "write": "write",
    "write_many": "write_many",
    "durable": "durable",
    "single": "single",
    "batch": "batch",
    "in order": "in order",
    "all": "all",
    "size": "size",
}

MOST_ROUNDS = 2
"""More would take too long: there are many stores and six sizes."""


def main(run: Run) -> dict[str, Any]:
    """Prints a table for each size and one for each comparison. Returns the figures by size and store."""
    print("writing in MB/s: one call for each record, write_many, and one call for each record with durable=True")
    rounds = min(run.rounds, MOST_ROUNDS)
    print(f"reading in microseconds a record, page cache warm, best of {READ_ROUNDS * rounds} interleaved rounds")
    print("checksums are on; batches have 256 random records")
    print("size: the size of the files divided by the size of the records\n")
    found: dict[str, Figures] = {}
    for workload in WORKLOADS:
        if run.only not in workload.name:
            continue
        records = workload.make(10 if run.quick else 1)
        with tempfile.TemporaryDirectory(dir=run.folder) as folder:
            seconds = 0.1 if run.quick else 0.25
            found[workload.name] = measure(
                present([*peers(), *ours(), *dropins()]), records, Path(folder), rounds, seconds
            )
        table(f"{len(records):,} records of about {workload.name}", found[workload.name])
    compare(found)
    return {"figures": found, "records": {w.name: w.records // (10 if run.quick else 1) for w in WORKLOADS}}


def present(stores: list[Store]) -> list[Store]:
    """The stores whose package is installed."""
    for package in {store.package for store in stores if not store.is_here()}:
        print(f"# {package} is not installed: pip install -r requirements/bench.txt")
    return [store for store in stores if store.is_here()]


def table(title: str, figures: Figures) -> None:
    rows = [(name, [number(row.get(way)) for way in COLUMNS]) for name, row in figures.items()]
    show(title, list(COLUMNS.values()), rows)


def compare(found: dict[str, Figures]) -> None:
    """Prints how many times faster anyrecord is, next to the goals."""
    print(f"how many times faster; {FASTEST}: the best of {', '.join(STORES)} in each cell")
    print("write_many and durable are compared with the only way of writing of the other store")
    for library in elsewhere.LIBRARIES.values():
        print(f"{library.title}: measured on another machine, reads scaled by the mmap-slice loop")
    print()
    for comparison in COMPARISONS:
        for against in comparison.against:
            cells = {size: ratios(figures, comparison.ours, against, size) for size, figures in found.items()}
            ways = [way for way in (*WRITES, *READS) if any(way in row for row in cells.values())]
            rows = [
                (way, [cell(comparison.ours, against, way, size, row) for size, row in cells.items()]) for way in ways
            ]
            if rows:
                show(f"{comparison.ours}, against {against}", list(cells), rows)
    print(f"goals: {counted(list(goals_of(found)))}\n")


def cell(ours: str, against: str, way: str, size: str, row: dict[str, float]) -> str:
    return verdict(row[way], goal(ours, against, way, size)) if way in row else "-"


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    return goals_of(found["figures"])


def goals_of(found: dict[str, Figures]) -> Iterator[Outcome]:
    """Every ratio that has a goal."""
    for comparison in COMPARISONS:
        for against in comparison.against:
            for size, figures in found.items():
                for way, ratio in ratios(figures, comparison.ours, against, size).items():
                    least = goal(comparison.ours, against, way, size)
                    if least is not None:
                        yield Outcome(f"{comparison.ours}, against {against}, {way}, {size}", ratio, least)
