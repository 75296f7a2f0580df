"""An epoch of a Grain pipeline over one ArrayRecord file of two million records, nothing in Grain changed.

    python examples/grain_epoch.py                   # two million records of 900 bytes: 2 GB in a temporary folder
    python examples/grain_epoch.py --records 20000   # a quick look

Prints the time of the pipeline over our drop-in for `array_record`, with one file and with 64 shards, and of the same
pipeline over records that are in memory, which is Grain's own floor. What the original would take is projected from a
sample of its reads, because they become slower the more records a file has.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyrecord
from anyrecord.compat.array_record.python.array_record_data_source import ArrayRecordDataSource

RECORD_BYTES = 900
SHARDS = 64
BATCH = 256


class InMemory(Sequence[bytes]):
    """Records that cost nothing to read, as many as you like: a few, over and over."""

    def __init__(self, records: int) -> None:
        self.length = records
        self.ready = [random.Random(i).randbytes(RECORD_BYTES) for i in range(64)]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.ready[index % 64]

    def _getitems(self, indices: Sequence[int]) -> list[bytes]:
        ready = self.ready
        return [ready[index % 64] for index in indices]  # the name that Grain looks for


def pipeline(source: Any) -> Any:
    """What anybody would write: a global shuffle, a transformation, batches."""
    import grain

    return grain.MapDataset.source(source).shuffle(seed=42).map(len).batch(BATCH, batch_fn=sum).to_iter_dataset()


def epoch(source: Any) -> float:
    """Seconds for every record once. The sum of all sizes shows that each came."""
    begin = time.perf_counter()
    total = sum(pipeline(source))
    took = time.perf_counter() - begin
    if total != len(source) * RECORD_BYTES:
        raise SystemExit(f"{total} bytes came of {len(source) * RECORD_BYTES}")
    return took


def write(folder: Path, records: int, shards: int) -> list[str]:
    """The data set, uncompressed, a record in each chunk, as Grain wants it."""
    chance = random.Random(1)
    pool = chance.randbytes(2_000_000)
    starts = (chance.randrange(len(pool) - RECORD_BYTES) for _ in range(records))
    path = folder / f"{shards}.array_record"
    sharding: dict[str, int] = {"shards": shards} if shards > 1 else {}
    with anyrecord.create(path, codec="none", group_size=1, durable=False, **sharding) as out:  # type: ignore[arg-type]
        out.write_many(pool[at : at + RECORD_BYTES] for at in starts)
    return anyrecord.open(f"{path}@{shards}" if shards > 1 else path).paths


def reads(source: Any, seconds: float) -> float:
    """Seconds to read all records one by one, without Grain: projected from a sample of so many seconds."""
    chance = random.Random(2)
    source[0]  # opens the file
    count, begin = 0, time.perf_counter()
    while (took := time.perf_counter() - begin) < seconds:
        source[chance.randrange(len(source))]
        count += 1
    return took / count * len(source)


def original(paths: list[str]) -> Any:
    """The original's source, where it is installed."""
    try:
        from array_record.python import array_record_data_source
    except ImportError:
        return None
    return array_record_data_source.ArrayRecordDataSource(paths)


def show(what: str, seconds: float, records: int) -> None:
    print(f"{what:<50} {seconds:>10,.1f} s {records / seconds:>14,.0f} records/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--sample", type=float, default=3.0, help="seconds for which the original is sampled")
    arguments = parser.parse_args()
    records: int = arguments.records
    print(f"{records:,} records of {RECORD_BYTES} bytes: shuffled, mapped, in batches of {BATCH}")
    with tempfile.TemporaryDirectory() as folder:
        epoch(InMemory(1000))  # loads Grain
        floor = epoch(InMemory(records))
        show("Grain's own floor: records in memory", floor, records)
        for shards in (1, SHARDS):
            paths = write(Path(folder), records, shards)
            files = "1 file" if shards == 1 else f"{shards} shards"
            ours, theirs = ArrayRecordDataSource(paths), original(paths)
            took = epoch(ours)
            show(f"anyrecord with Grain, {files}", took, records)
            show(f"anyrecord, {files}, reads alone, projected", reads(ours, arguments.sample), records)
            if theirs is not None:
                projected = reads(theirs, arguments.sample)
                show(f"array_record, {files}, reads alone, projected", projected, records)
                show(f"array_record with Grain, {files}, projected", projected + floor, records)
                print(f"    with Grain, anyrecord is {(projected + floor) / took:,.1f}x as fast")
            for path in paths:
                Path(path).unlink()


if __name__ == "__main__":
    main()
