"""Prints a table for each size of records and each peer: microseconds a record, and how many times faster we are."""

from __future__ import annotations

import argparse
import platform
import tempfile
from pathlib import Path

import anyrecord

from benches import conversion, order, stores
from benches.timing import Figures, measure
from benches.workloads import WORKLOADS

WAYS = ["single", "batch", "in order", "all", "write"]

# Who is compared with whom: the peer first, then ourselves on the same records.
COMPARISONS: list[tuple[type[stores.Store], ...]] = [
    (stores.MmapSlice, stores.OurFfRecord, stores.OurTfRecord, stores.OurRecordIo),
    (stores.OriginalPlain, stores.OurPlain),
    (stores.OriginalZstd, stores.OurZstd),
    (stores.OriginalGrouped, stores.OurGrouped),
]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement; the best counts")
    parser.add_argument(
        "--only", default="", help="only sizes whose name contains this, such as 'KB', or 'order', or 'conversion'"
    )
    parser.add_argument("--convert-mb", type=int, default=1000, help="size of the file that is converted")
    arguments = parser.parse_args()
    print(f"anyrecord {anyrecord.__version__}, Python {platform.python_version()}, {machine()}")
    print("microseconds a record, best of", arguments.rounds, "interleaved rounds; page cache warm, checksums on")
    print("batches of 256 at random; (2.0x): twice as fast as the peer in the row above it\n")
    for workload in WORKLOADS:
        if arguments.only not in workload.name:
            continue
        records = workload.make()
        print(f"{workload.records:,} records of about {workload.name}")
        print("".join(c.rjust(24) for c in ["", *WAYS]))
        for pair in COMPARISONS:
            with tempfile.TemporaryDirectory() as folder:
                show(pair, measure(list(pair), records, Path(folder), arguments.rounds))
        print()
    if arguments.only in "order":
        order.main(arguments.rounds)
    if arguments.only in "conversion":
        with tempfile.TemporaryDirectory() as folder:
            conversion.report(Path(folder), arguments.convert_mb * 1_000_000)


def show(pair: tuple[type[stores.Store], ...], figures: Figures) -> None:
    peer = figures[pair[0].name]
    for store in pair:
        row = figures[store.name]
        cells = [f"{row[way]:.2f}" + ("" if row is peer else f" ({peer[way] / row[way]:.1f}x)") for way in WAYS]
        print("".join(c.rjust(24) for c in [store.name, *cells]))


def machine() -> str:
    """The processor, as the system names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


if __name__ == "__main__":
    main()
