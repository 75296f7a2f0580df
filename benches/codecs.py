"""Every codec of ArrayRecord at its documented levels, one record a chunk, compared with the original."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benches.ours import Anyrecord
from benches.peers import ArrayRecord
from benches.ratios import ratios
from benches.results import Run
from benches.store import Store
from benches.stores import present, table
from benches.tables import show
from benches.timing import measure
from benches.workloads import THREE

CODECS: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"codec": "none"}, "uncompressed"),
    "snappy": ({"codec": "snappy"}, "snappy"),
    "zstd:3": ({"codec": "zstd", "level": 3}, "zstd:3"),
    "brotli:6": ({"codec": "brotli", "level": 6}, "brotli:6"),
    "brotli:11": ({"codec": "brotli", "level": 11}, "brotli:11"),
}
"""For each codec, the options of anyrecord and the option string of the original."""

SLOW = {"brotli:6": 2, "brotli:11": 20}
"""A codec that compresses slowly gets one in this many records."""


def main(run: Run) -> dict[str, Any]:
    """Prints a table for each size. Returns the figures by size, codec and store."""
    print("writing in MB/s, reading in microseconds a record; both read the file that the original wrote")
    print(f"slow codecs compress fewer records: {', '.join(f'{name} one in {part}' for name, part in SLOW.items())}\n")
    found: dict[str, Any] = {}
    for workload in THREE[1:]:
        if run.only not in workload.name:
            continue
        records = workload.make(40 if run.quick else 4)
        rows, times = {}, []
        for codec, (options, text) in CODECS.items():
            ours = Anyrecord(f"anyrecord {codec}", "ours.array_record", reads="original", group_size=1, **options)
            stores: list[Store] = present(
                [ArrayRecord(f"array_record {codec}", "original", f"group_size:1,{text}"), ours]
            )
            part = records[: len(records) // SLOW.get(codec, 1)]
            with tempfile.TemporaryDirectory(dir=run.folder) as folder:
                figures = measure(stores, part, Path(folder), min(run.rounds, 2), 0.2)
            rows.update(figures)
            faster = ratios(figures, ours.name, f"array_record {codec}", workload.name)
            times.append((codec, [f"{faster[way]:.1f}x" if way in faster else "-" for way in WAYS]))
        table(f"{len(records):,} records of about {workload.name}", rows)
        show("times faster than the original", list(WAYS), times)
        found[workload.name] = rows
    return found


WAYS = ("write", "single", "batch", "in order", "all")
