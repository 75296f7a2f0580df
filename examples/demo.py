"""The main job, on data made on the spot: write a data set, read it at random and in order, verify it, convert it.

Run by `make demo`; prints one row for each format and way of writing it.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyrecord

T = TypeVar("T")

RECORDS = 20_000
READS = 20_000

# What is written: a title, the file's name, and the options of `create`.
VARIANTS: list[tuple[str, str, dict[str, Any]]] = [
    ("ffrecord", "reviews.ffr", {}),
    ("ffrecord, 4 shards", "sharded.ffr", {"shards": 4}),
    ("array_record, uncompressed", "plain.array_record", {"codec": "none"}),
    ("array_record, zstd", "zstd.array_record", {"codec": "zstd"}),
    ("array_record, brotli, groups of 100", "brotli.array_record", {"codec": "brotli", "group_size": 100}),
    ("recordio, snappy", "snappy.recordio", {}),
    ("recordio, gzip, chunks of 100 KB", "gzip.recordio", {"codec": "gzip", "chunk_bytes": 100_000}),
    ("tfrecord", "plain.tfrecord", {}),
    ("tfrecord, gzip", "gzip.tfrecord.gz", {"codec": "gzip"}),
]


def samples() -> Iterator[bytes]:
    """Reviews as JSON, a few hundred bytes each: made up, but of the size and kind that people store."""
    chance = random.Random(1)
    words = ["the", "a", "good", "bad", "movie", "plot", "actor", "was", "is", "very", "never", "slow", "brilliant"]
    for number in range(RECORDS):
        text = " ".join(chance.choices(words, k=chance.randint(20, 120)))
        sample = {"id": number, "stars": chance.randint(1, 5), "text": text}
        yield json.dumps(sample).encode()


def timed(job: Callable[[], T]) -> tuple[float, T]:
    """How long a job takes, and its result."""
    start = time.perf_counter()
    result = job()
    return time.perf_counter() - start, result


def main() -> None:
    data = list(samples())
    total = sum(map(len, data))
    print(f"anyrecord {anyrecord.__version__}: {len(data):,} samples, {total / 1e6:.1f} MB\n")
    columns = ["format", "files", "file MB", "write rec/s", "random rec/s", "batch rec/s", "in order rec/s", "verified"]
    widths = [max(len(c), 14) for c in columns]
    widths[0] = max(len(title) for title, _, _ in VARIANTS)

    def show(cells: list[str]) -> None:
        print("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)))

    show(columns)
    with tempfile.TemporaryDirectory() as folder:
        for title, name, options in VARIANTS:
            show([title, *demonstrate(Path(folder) / name, options, data)])
        print("\nEvery record read back was compared with what was written.\n")
        convert(Path(folder), data)


def convert(folder: Path, data: list[bytes]) -> None:
    """From format to format and back again."""
    source = folder / "plain.tfrecord"
    targets: list[tuple[str, dict[str, Any]]] = [
        ("to.array_record", {"group_size": 100}),
        ("to.recordio", {}),
        ("to.ffr", {"shards": 3}),
    ]
    for name, options in targets:
        took, done = timed(partial(anyrecord.convert, source, folder / name, **options))
        check([record for path in done.paths for record in anyrecord.open(path)] == data)
        source = folder / "again.tfrecord"
        anyrecord.convert(done.paths, source, overwrite=True)
        check(list(anyrecord.open(source)) == data)
        files = f"{len(done.paths)} file{'s' if len(done.paths) > 1 else ''}"
        print(f"tfrecord to {done.format} ({files}) in {took:.2f} s, and back again: {done.records:,} equal records")


def demonstrate(path: Path, options: dict[str, Any], data: list[bytes]) -> list[str]:
    """One row: writes, reads in three ways, compares, verifies."""

    def write() -> None:
        with anyrecord.create(path, **options) as out:
            out.write_many(data)

    writing, _ = timed(write)
    shards = options.get("shards", 1)
    records = anyrecord.open(path if shards == 1 else f"{path}@{shards}")
    # Shards are dealt out in turn, so that their order is not the order of writing.
    expected = data if shards == 1 else [sample for shard in range(shards) for sample in data[shard::shards]]

    chance = random.Random(2)
    indices = [chance.randrange(len(records)) for _ in range(READS)]
    wanted = [expected[i] for i in indices]
    batches = [indices[i : i + 256] for i in range(0, READS, 256)]
    singly, got = timed(lambda: [records[i] for i in indices])
    check(got == wanted)
    batched, in_batches = timed(lambda: [records[batch] for batch in batches])
    check([record for batch in in_batches for record in batch] == wanted)
    in_order, got = timed(lambda: list(records))
    check(got == expected)

    report = anyrecord.verify(records.paths)
    check(report.ok and report.records == len(data))
    return [
        str(len(records.paths)),
        f"{report.file_bytes / 1e6:.1f}",
        f"{len(data) / writing:,.0f}",
        f"{READS / singly:,.0f}",
        f"{READS / batched:,.0f}",
        f"{len(data) / in_order:,.0f}",
        f"{report.records:,} ok",
    ]


def check(equal: bool) -> None:
    if not equal:
        sys.exit("what was read is not what was written")


if __name__ == "__main__":
    main()
