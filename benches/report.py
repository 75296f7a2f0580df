"""Formats saved results as Markdown: the short table of the README, and the figures of docs/speed.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benches import cache, first_epoch, fresh, loaders, upload
from benches.goals import times
from benches.outcomes import outcomes
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
SIZES_OF_README = ("120 B", "4 KB", "100 KB")

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


def summary(results: Results) -> Iterator[str]:
    """How many times faster anyrecord is: a table for each way, with a row for each other library."""
    sizes: dict[str, Any] = results.found("stores")["figures"]
    for way, title in WAYS.items():
        rows = []
        for what, ours, against, named in SUMMARY:
            found = [ratios(figures_of, ours, against, size).get(way) for size, figures_of in sizes.items()]
            if any(found) and (against, way) not in NO_RANDOM_ACCESS:
                rows.append((f"{what}, against {named}", [times(ratio) if ratio else "-" for ratio in found]))
        if rows:
            yield f"{title[0].upper()}{title[1:]}, times faster:"
            yield markdown(list(sizes), rows)


def short_summary(results: Results) -> str:
    """The table of the README: a cell has three sizes. It uses default options, so writing waits for the disk."""
    ways = {way: name for way, name in WAYS.items() if way != "write"} | {"durable": "writing"}
    sizes: dict[str, Any] = results.found("stores")["figures"]
    rows = []
    for what, ours, against, named in IN_README:
        found = [ratios(sizes[size], ours, against, size) for size in SIZES_OF_README if size in sizes]
        cells = [", ".join(times(row[way]) for row in found if way in row) for way in ways]
        rows.append((f"{what}, against {named}", cells))
    return markdown(list(ways.values()), rows)


def figures(results: Results, pictures: Sequence[Path], source: str) -> str:
    """All results, with a description of the machine. `source`: the file that they are in."""
    return "\n\n".join(paragraphs(results, {path.stem: path for path in pictures}, source)) + "\n"


def paragraphs(results: Results, pictures: dict[str, Path], source: str) -> Iterator[str]:
    machine = results.described("stores")
    yield (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory']} of memory, {machine['system']}, files on "
        f"{machine['filesystem']}, Python {machine['python']}; {machine['packages']}. Made by "
        f"`python -m benches.plot` from `{source}`."
    )
    yield from goals(results)
    for name, path in pictures.items():
        yield f"![{TITLES[name]}](images/{path.name})"
    if results.found("stores"):
        yield "### Times faster"
        yield from summary(results)
        yield from tables_of_stores(results)
    if results.found("fresh"):
        yield from tables_of_fresh(results)
    if results.found("first_epoch"):
        yield from tables_of_first_epoch(results)
    if results.found("curve"):
        yield from tables_of_lengths(results)
    if results.found("codecs"):
        yield "### Codecs of ArrayRecord"
        for size, rows in results.found("codecs").items():
            yield f"Records of about {size}; writing in MB/s, reading in microseconds a record."
            yield table(rows)
    if results.found("opening"):
        yield from tables_of_opening(results)
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


def goals(results: Results) -> Iterator[str]:
    """How many goals are reached, and a list of those that are not."""
    found = outcomes(results)
    if not found:
        return
    yield "### Goals"
    rows = []
    for name, of_one in found.items():
        reached = sum(outcome.is_reached for outcome in of_one)
        rows.append((f"`{name}`", [str(reached), str(len(of_one) - reached)]))
    yield markdown(["reached", "missed"], rows)
    missed = [
        f"- `{name}`: {outcome.line()}"
        for name, of_one in found.items()
        for outcome in of_one
        if not outcome.is_reached
    ]
    if missed:
        yield "Missed:"
        yield "\n".join(missed)


def tables_of_fresh(results: Results) -> Iterator[str]:
    found = results.found("fresh")
    yield "### Every record once in a new process"
    yield "Microseconds a record, page cache warm, with opening the file."
    for way in fresh.WAYS:
        sizes = [size for size, rows in found["figures"].items() if any(way in row for row in rows.values())]
        names = dict.fromkeys(name for size in sizes for name in found["figures"][size])
        yield f"{WAYS[way][0].upper()}{WAYS[way][1:]}:"
        yield markdown(
            sizes,
            [(name, [number(found["figures"][size].get(name, {}).get(way)) for size in sizes]) for name in names],
        )


def tables_of_first_epoch(results: Results) -> Iterator[str]:
    yield "### A cold first epoch"
    for size, found in results.found("first_epoch").items():
        yield f"{found['records']:,} records of {size}."
        yield markdown(first_epoch.columns(), first_epoch.table(found))


def remote_summary(results: Results) -> str:
    parts = []
    for size, found in results.found("remote").items():
        versions = ", ".join(dict.fromkeys(row["version"] for row in found["rows"].values()))
        parts += [f"{found['records']:,} records of {size}; {versions}:", markdown(COLUMNS, table_of_loaders(found))]
    return "\n\n".join(parts)


def cache_summary(results: Results) -> str:
    """How much of the speed of local files the cache has, by kind of file and way."""
    found = results.found("cache")
    names = dict.fromkeys(name for rows in found.values() for name in rows)
    shares = {size: {name: f"{cache.share(**row):.0%}" for name, row in rows.items()} for size, rows in found.items()}
    return markdown(list(found), [(name, [rows.get(name, "-") for rows in shares.values()]) for name in names])


def upload_summary(results: Results) -> str:
    """Seconds of each way, by case."""
    found = results.found("upload")
    ways = [way for way in dict.fromkeys(way for case in found.values() for way in case["rows"]) if way != upload.LOCAL]
    rows = []
    for name, case in found.items():
        ours = case["rows"][upload.OURS]
        others = [row["seconds"] for way, row in case["rows"].items() if way not in (upload.OURS, upload.LOCAL)]
        seconds = [number(case["rows"].get(way, {}).get("seconds")) for way in ways]
        against = f"{min(others) / ours['seconds']:.2f}x" if others else "-"
        rows.append((name, [*seconds, number(ours["MB/s"]), against]))
    return markdown([*ways, "MB/s of anyrecord", "against the faster"], rows)


def tables_of_loaders(results: Results) -> Iterator[str]:
    yield "### A shuffled epoch in PyTorch"
    for name, found in results.found("loaders").items():
        versions = ", ".join(dict.fromkeys(row["version"] for row in found["rows"].values()))
        yield f"{found['records']:,} samples, {name}, batches of {found['batch']}; {versions}."
        yield markdown(loaders.columns(found), loaders.table(found))
