"""Formats saved results as Markdown: the short table of the README, and the figures of docs/speed.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benches import loaders
from benches.goals import times
from benches.ratios import FASTEST, ratios
from benches.remote import COLUMNS
from benches.remote import table as table_of_loaders
from benches.results import Results
from benches.store import READS, WRITES
from benches.tables import markdown, number

SUMMARY = [
    ("ArrayRecord", "anyrecord array g1 none", "array_record g1 none", "`array_record`"),
    ("ArrayRecord, zstd", "anyrecord array g1 zstd", "array_record g1 zstd", "`array_record`"),
    ("ArrayRecord, zstd, 256 records a chunk", "anyrecord array g256 zstd", "array_record g256 zstd", "`array_record`"),
    ("ArrayRecord", "anyrecord array g1 none", "array_record g1 none source", "`array_record` as Grain calls it"),
    ("FFRecord", "anyrecord ffrecord", "ffrecord", "`ffrecord` (measured on another machine)"),
    ("FFRecord", "anyrecord ffrecord", FASTEST, "the faster of bagz and LMDB"),
    ("RecordIO", "anyrecord recordio none", "recordio Go none", "`recordio` in Go (measured on another machine)"),
    ("TFRecord", "anyrecord tfrecord", "tfrecord", "`tfrecord`"),
]
"""The format, the store of anyrecord, the other store, and the name of the other store in the table."""

IN_README = [
    ("ArrayRecord", "anyrecord array g1 none", "array_record g1 none", "`array_record`"),
    ("ArrayRecord, zstd, 256 records a chunk", "anyrecord array g256 zstd", "array_record g256 zstd", "`array_record`"),
    ("FFRecord", "anyrecord ffrecord", "ffrecord", "`ffrecord` (measured on another machine)"),
    ("TFRecord", "anyrecord tfrecord", "tfrecord", "`tfrecord`"),
    ("FFRecord", "anyrecord ffrecord", FASTEST, "the faster of bagz and LMDB"),
]
"""The rows of the README: a few, and one in which anyrecord is slower."""

WAYS = {"single": "one at a time", "batch": "batches of 256", "in order": "in order", "write": "writing"}
TITLES = {
    "stores": "How long a read takes in each store",
    "curve": "How long a read takes by the number of records in the file",
    "cores": "Batches decoded by several threads",
    "gpu": "Random records to the memory of a GPU",
    "accelerators": "Simulated accelerators that are kept busy",
}


NO_RANDOM_ACCESS = {("recordio Go none", "single")}
"""Ways that the other library does not support. It would read the whole file, so a ratio would be meaningless."""


def summary(results: Results) -> str:
    """How many times faster anyrecord is: a row for each other library, and a cell with all sizes for each way."""
    return compared(results, SUMMARY, WAYS)


def short_summary(results: Results) -> str:
    """The table of the README. It uses default options, so writing waits for the disk."""
    ways = {way: name for way, name in WAYS.items() if way != "write"} | {"durable": "writing"}
    return compared(results, IN_README, ways)


def compared(results: Results, stores: list[tuple[str, str, str, str]], ways: dict[str, str]) -> str:
    sizes: dict[str, Any] = results.found("stores")["figures"]
    rows = []
    for what, ours, against, named in stores:
        found = [ratios(rows_of, ours, against, size) for size, rows_of in sizes.items()]
        if not any(row.keys() & ways.keys() for row in found):
            continue
        cells = [
            "no random access"
            if (against, way) in NO_RANDOM_ACCESS
            else ", ".join(times(row[way]) for row in found if way in row)
            for way in ways
        ]
        rows.append((f"{what}, against {named}", cells))
    return f"Times faster at {', '.join(sizes)}:\n\n" + markdown(list(ways.values()), rows)


def figures(results: Results, pictures: Sequence[Path]) -> str:
    """All results, with a description of the machine."""
    return "\n\n".join(paragraphs(results, {path.stem: path for path in pictures})) + "\n"


def paragraphs(results: Results, pictures: dict[str, Path]) -> Iterator[str]:
    machine = results.machine
    yield (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory']} of memory, {machine['system']}, files on "
        f"{machine['filesystem']}, Python {machine['python']}; {machine['packages']}. Made by "
        "`python -m benches.plot` from saved results."
    )
    for name, path in pictures.items():
        yield f"![{TITLES[name]}](images/{path.name})"
    if results.found("stores"):
        yield "### Times faster"
        yield summary(results)
        yield from tables_of_stores(results)
    if results.found("curve"):
        yield from tables_of_lengths(results)
    if results.found("codecs"):
        yield "### Codecs of ArrayRecord"
        for size, rows in results.found("codecs").items():
            yield f"Records of about {size}; writing in MB/s, reading in microseconds a record."
            yield table(rows)
    if results.found("opening"):
        yield from tables_of_opening(results)
    if results.found("remote"):
        yield from tables_of_remote(results)
    if results.found("loaders"):
        yield from tables_of_loaders(results)


def tables_of_stores(results: Results) -> Iterator[str]:
    found = results.found("stores")
    for size, rows in found["figures"].items():
        yield f"### {found['records'][size]:,} records of about {size}"
        yield "Writing in MB/s, reading in microseconds a record; size: bytes in the files for each byte of records."
        yield table(rows)


def table(rows: dict[str, dict[str, float]]) -> str:
    columns = [*WRITES, *READS, "size"]
    return markdown(columns, [(name, [number(row.get(way)) for way in columns]) for name, row in rows.items()])


def tables_of_lengths(results: Results) -> Iterator[str]:
    found = results.found("curve")
    for way, stores in found["microseconds"].items():
        lengths = list(next(iter(stores.values())))
        yield f"### Records in the file, {WAYS[way]}"
        yield f"Microseconds a record of {found['record_bytes']} bytes."
        rows = [(name, [number(row.get(length)) for length in lengths]) for name, row in stores.items()]
        yield markdown([f"{int(length):,}" for length in lengths], rows)


def tables_of_opening(results: Results) -> Iterator[str]:
    found = results.found("opening")
    yield "### Opening"
    columns = {"seconds": "seconds", "stays": "MB more", "peak": "MB more at the peak"}
    rows = [(name, [number(row[what]) for what in columns]) for name, row in found["one file"].items()]
    yield markdown(list(columns.values()), rows)
    for count, stores in found["shards"].items():
        rows = [(name, [number(row["seconds"]), number(row["every"])]) for name, row in stores.items()]
        yield markdown([f"{int(count):,} shards, seconds", "with one read of each"], rows)


def tables_of_remote(results: Results) -> Iterator[str]:
    yield "### A shuffled epoch from an object store"
    for size, found in results.found("remote").items():
        versions = ", ".join(dict.fromkeys(row["version"] for row in found["rows"].values()))
        yield f"{found['records']:,} records of {size}; {versions}."
        yield markdown(COLUMNS, table_of_loaders(found))


def tables_of_loaders(results: Results) -> Iterator[str]:
    yield "### A shuffled epoch in PyTorch"
    for name, found in results.found("loaders").items():
        versions = ", ".join(dict.fromkeys(row["version"] for row in found["rows"].values()))
        yield f"{found['records']:,} samples, {name}, batches of {found['batch']}; {versions}."
        yield markdown(loaders.columns(found), loaders.table(found))
