"""Figures of libraries that were measured on another machine, scaled by the mmap-slice loop.

FFRecord's own library and the Go library of RecordIO cannot be installed from the registry, so they do not run here.
They were measured on another machine together with the mmap-slice loop. Read times are multiplied by the time of that
loop here, divided by its time there. Write rates are not scaled.
"""

from __future__ import annotations

from dataclasses import dataclass

SIZES = ("120 B", "4 KB", "100 KB")
THERE = {
    "single": (0.55, 0.86, 5.3),
    "batch": (0.37, 0.75, 7.7),
    "in order": (0.09, 0.28, 4.9),
}
"""The mmap-slice loop on the other machine: microseconds a record for each size."""


@dataclass(frozen=True)
class Library:
    """A library that was measured on another machine: a figure for each size, by way."""

    title: str
    figures: dict[str, tuple[float, float, float]]


LIBRARIES = {
    "ffrecord": Library(
        "ffrecord, its C++ library",
        {
            "single": (1.6, 3.3, 35),
            "batch": (1.2, 2.9, 39),
            "in order": (1.1, 2.7, 33),
            "write": (67, 773, 1720),
        },
    ),
    "recordio Go none": Library(
        "recordio, the Go library, uncompressed",
        {"single": (200_000, 26_000, 18_000), "in order": (1.1, 2.7, 34)},
    ),
    "recordio Go snappy": Library(
        "recordio, the Go library, snappy",
        {"single": (200_000, 26_000, 18_000), "in order": (2.4, 4.6, 48)},
    ),
}


def scaled(name: str, workload: str, mmap_slice: dict[str, float]) -> dict[str, float]:
    """The estimated figures of the library on this machine, scaled by the mmap-slice loop."""
    if workload not in SIZES:
        return {}
    at = SIZES.index(workload)
    row = {}
    for way, figures in LIBRARIES[name].figures.items():
        if way not in THERE:
            row[way] = figures[at]
        elif way in mmap_slice:
            row[way] = figures[at] * mmap_slice[way] / THERE[way][at]
    return row
