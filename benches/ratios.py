"""How many times faster anyrecord is: computes the ratios, and lists which stores are compared."""

from __future__ import annotations

from dataclasses import dataclass

from benches import elsewhere
from benches.store import READS, WRITES

Row = dict[str, float]
"""Figures of one store by way: MB/s for writes, microseconds a record for reads, and its `size`."""
Figures = dict[str, Row]
"""Rows by the name of the store."""

FASTEST = "the fastest store"
STORES = ("bagz raw", "bagz zstd", "lmdb")
"""The stores among which the fastest is chosen for each cell."""


def better(way: str, one: float, other: float) -> float:
    """The faster of two figures of a way."""
    return max(one, other) if way in WRITES else min(one, other)


def ratio(way: str, ours: float, theirs: float) -> float:
    """How many times faster anyrecord is."""
    return ours / theirs if way in WRITES else theirs / ours


def fastest(figures: Figures) -> Row:
    """The best figure in each cell, of the stores in `STORES` that were measured."""
    row: Row = {}
    for store in STORES:
        for way, figure in figures.get(store, {}).items():
            if way != "size":
                row[way] = better(way, row.get(way, figure), figure)
    return row


def reference(figures: Figures, name: str, workload: str) -> Row:
    """The figures to compare with: of a store, of the fastest store, or of a library measured elsewhere."""
    if name == FASTEST:
        return fastest(figures)
    if name in elsewhere.LIBRARIES:
        return elsewhere.scaled(name, workload, figures.get("mmap slice", {}))
    return figures.get(name, {})


def ratios(figures: Figures, ours: str, against: str, workload: str) -> Row:
    """How many times faster anyrecord is, for each way that both stores have."""
    row, theirs = figures.get(ours, {}), reference(figures, against, workload)
    # Other stores have one way of writing. It is compared with all ways of anyrecord.
    theirs = {**{way: theirs["write"] for way in WRITES if "write" in theirs}, **theirs}
    return {way: ratio(way, row[way], theirs[way]) for way in (*WRITES, *READS) if way in row and way in theirs}


@dataclass(frozen=True)
class Comparison:
    """One store of anyrecord, and the stores that it is compared with."""

    ours: str
    against: tuple[str, ...]


COMPARISONS = [
    Comparison(
        "anyrecord array g1 none", ("array_record g1 none", "array_record g1 none source", FASTEST, "mmap slice")
    ),
    Comparison("anyrecord array g1 none unchecked", ("array_record g1 none", FASTEST, "mmap slice")),
    Comparison("anyrecord array g1 none once", (FASTEST, "mmap slice")),
    Comparison("anyrecord array g1 zstd", ("array_record g1 zstd", "array_record g1 zstd source", "bagz zstd")),
    Comparison("anyrecord array g256 zstd", ("array_record g256 zstd",)),
    Comparison("anyrecord ffrecord", ("ffrecord", FASTEST, "mmap slice")),
    Comparison("anyrecord ffrecord unchecked", ("ffrecord", FASTEST, "mmap slice")),
    Comparison("anyrecord ffrecord once", (FASTEST, "mmap slice")),
    Comparison("anyrecord recordio none", ("recordio Go none",)),
    Comparison("anyrecord recordio snappy", ("recordio Go snappy",)),
    Comparison("anyrecord tfrecord", ("tfrecord",)),
    Comparison("drop-in ffrecord", ("ffrecord",)),
    Comparison("drop-in array_record g1 none", ("array_record g1 none",)),
    Comparison("drop-in array_record g1 none source", ("array_record g1 none source",)),
    Comparison("drop-in array_record g1 zstd", ("array_record g1 zstd",)),
    Comparison("drop-in array_record g256 zstd", ("array_record g256 zstd",)),
    Comparison("drop-in recordio none", ("recordio Go none",)),
]
