"""Figures of libraries that were measured on another machine, scaled by the mmap-slice loop.

FFRecord's own library and the Go library of RecordIO cannot be installed from the registry, so they do not run here.
They were measured on another machine together with the mmap-slice loop. Read times are multiplied by the time of that
loop here, divided by its time there. Write rates are not scaled.

120 B, 4 KB and 100 KB were measured in one run, the other sizes in a later one, which had no figures of writing and
none of RecordIO. Each size is scaled by the loop of its own run.
"""

from __future__ import annotations

from dataclasses import dataclass

Row = dict[str, float]

THERE: dict[str, Row] = {
    "120 B": {"single": 0.55, "batch": 0.37, "in order": 0.09},
    "700 B": {"single": 0.68, "batch": 0.57, "in order": 0.17},
    "4 KB": {"single": 0.86, "batch": 0.75, "in order": 0.28},
    "20 KB": {"single": 2.0, "batch": 2.1, "in order": 1.4},
    "100 KB": {"single": 5.3, "batch": 7.7, "in order": 4.9},
    "1 MB": {"single": 45, "batch": 106, "in order": 43},
}
"""The mmap-slice loop on the other machine: microseconds a record, by size and way."""


@dataclass(frozen=True)
class Library:
    """A library that was measured on another machine."""

    title: str
    figures: dict[str, Row]
    """By size and way."""


LIBRARIES = {
    "ffrecord": Library(
        "ffrecord, its C++ library",
        {
            "120 B": {"single": 1.6, "batch": 1.2, "in order": 1.1, "write": 67},
            "700 B": {"single": 2.9, "batch": 2.2, "in order": 1.6},
            "4 KB": {"single": 3.3, "batch": 2.9, "in order": 2.7, "write": 773},
            "20 KB": {"single": 11, "batch": 12, "in order": 9.3},
            "100 KB": {"single": 35, "batch": 39, "in order": 33, "write": 1720},
            "1 MB": {"single": 314, "batch": 394, "in order": 303},
        },
    ),
    "recordio Go none": Library(
        "recordio, the Go library, uncompressed",
        {
            "120 B": {"single": 200_000, "in order": 1.1},
            "4 KB": {"single": 26_000, "in order": 2.7},
            "100 KB": {"single": 18_000, "in order": 34},
        },
    ),
    "recordio Go snappy": Library(
        "recordio, the Go library, snappy",
        {
            "120 B": {"single": 200_000, "in order": 2.4},
            "4 KB": {"single": 26_000, "in order": 4.6},
            "100 KB": {"single": 18_000, "in order": 48},
        },
    ),
}


def scaled(name: str, workload: str, mmap_slice: Row) -> Row:
    """The estimated figures of the library on this machine, scaled by the mmap-slice loop."""
    row: Row = {}
    for way, figure in LIBRARIES[name].figures.get(workload, {}).items():
        if way not in THERE[workload]:
            row[way] = figure
        elif way in mmap_slice:
            row[way] = figure * mmap_slice[way] / THERE[workload][way]
    return row
