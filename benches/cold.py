"""Cold files: the cost of reads that are not in the page cache, compared with the rate of the disk."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyrecord
from anyrecord import Records

from benches import device
from benches.page_cache import forget, forget_everything
from benches.results import Run
from benches.tables import number, show
from benches.timing import BATCH

RECORD_BYTES = 4096
THREADS = 16
WAYS_TO_READ: dict[str, dict[str, Any]] = {"": {}, ', io="plain"': {"io": "plain"}, ', io="direct"': {"io": "direct"}}


def main(run: Run) -> dict[str, Any]:
    """Prints tables for FFRecord and ArrayRecord. Returns microseconds a record by file and way."""
    count = (100_000_000 if run.quick else 1_000_000_000) // RECORD_BYTES
    print(
        f"{count:,} incompressible records of {RECORD_BYTES:,} bytes; the file is removed from the page cache before "
        "each row"
    )
    print("disk: the bytes that the system has read from disk for this process, including read-ahead\n")
    ffrecord, array_record = run.folder / "cold.ffr", run.folder / "cold.array_record"
    write(ffrecord, count, num_records=count)
    write(array_record, count, codec="none", group_size=1)
    found: dict[str, Any] = {}
    for path in (ffrecord, array_record):
        found[path.suffix] = rows = measure(run, path, count)
        table = [(name, [number(row[what]) for what in row]) for name, row in rows.items()]
        show(f"cold {path.suffix}", ["microseconds a record", "records", "disk MB"], table)
        alone, together = rows["one at a time"], rows[f"one at a time, {THREADS} threads"]
        gain = alone["microseconds"] / together["microseconds"]
        print(f"  {THREADS} threads are {gain:.1f}x as fast as one\n")
    found["device"] = epoch(run, ffrecord, count)
    ffrecord.unlink()
    array_record.unlink()
    return found


def write(path: Path, count: int, **options: Any) -> None:
    chance = random.Random(5)
    pool = chance.randbytes(4_000_000)
    with anyrecord.create(path, **options) as out:
        starts = (chance.randrange(len(pool) - RECORD_BYTES) for _ in range(count))
        out.write_many(pool[at : at + RECORD_BYTES] for at in starts)


def measure(run: Run, path: Path, count: int) -> dict[str, dict[str, float]]:
    """Microseconds a record, the number of records, and MB read from disk, by way."""
    picks = random.Random(3).sample(range(count), min(count, 20_480))
    few = picks[: 1000 if run.quick else 2000]
    batches = [picks[i : i + BATCH] for i in range(0, len(picks) - BATCH + 1, BATCH)]

    ways: dict[str, Way] = {}
    for name, options in WAYS_TO_READ.items():
        reopen = partial(anyrecord.open, path, **options)
        ways[f"one at a time{name}"] = Way(reopen, one_by_one, few)
        ways[f"one at a time, {THREADS} threads{name}"] = Way(reopen, in_threads, picks)
        ways[f"batches of {BATCH}{name}"] = Way(reopen, one_by_one, batches)
    if path.suffix == ".array_record" and find_spec("array_record") is not None:
        plain = "readahead_buffer_size:0,max_parallelism:0"
        ways["array_record, seek and read"] = Way(partial(original, path, plain), original_singly, few)
        ways[f"array_record, batches of {BATCH}"] = Way(partial(original, path, ""), original_batches, batches)
    found: dict[str, dict[str, float]] = {}
    for _ in range(run.rounds):
        for name, way in ways.items():
            make_cold(run, path)
            row = way.measure()
            if name not in found or row["microseconds"] < found[name]["microseconds"]:
                found[name] = row
    return found


@dataclass(frozen=True)
class Way:
    """One way to read a cold file. The file is closed afterwards, because mapped pages stay in the page cache."""

    open: Callable[[], Any]
    read: Callable[[Any, Any], object]
    keys: Sequence[Any]

    def measure(self) -> dict[str, float]:
        reads = sum(len(key) if isinstance(key, list) else 1 for key in self.keys)
        with closing(self.open()) as opened:
            before, begin = disk_bytes(), time.perf_counter()
            self.read(opened, self.keys)
            took = time.perf_counter() - begin
        read = disk_bytes() - before
        if 0 < read < reads * RECORD_BYTES / 2:
            print(f"# only {read / 1e6:.1f} MB were read from disk: the file was not cold")
        return {"microseconds": took / reads * 1e6, "records": reads, "disk": read / 1e6}


def one_by_one(records: Records, keys: Sequence[Any]) -> None:
    for key in keys:
        records[key]


def in_threads(records: Records, picks: Sequence[int]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda part: one_by_one(records, part), [picks[i::THREADS] for i in range(THREADS)]))


def original(path: Path, options: str) -> Any:
    from array_record.python.array_record_module import ArrayRecordReader

    return ArrayRecordReader(str(path), options)


def original_singly(reader: Any, picks: Sequence[int]) -> None:
    for pick in picks:
        reader.seek(pick)
        reader.read()


def original_batches(reader: Any, batches: Sequence[Sequence[int]]) -> None:
    for batch in batches:
        reader.read(batch)


def epoch(run: Run, path: Path, count: int) -> dict[str, float]:
    """A whole epoch in random order, compared with the raw disk on the same blocks."""
    begin = path.stat().st_size - count * RECORD_BYTES  # samples are at the end of the file, one after the other
    order = anyrecord.Permutation(count, seed=1).take(range(count)).tolist()
    starts = [begin + record * RECORD_BYTES for record in order]
    found = {f"disk alone, {depth} in flight": rate for depth, rate in device.rates(path, blocks(starts)).items()}
    for name, options in WAYS_TO_READ.items():
        make_cold(run, path)
        with anyrecord.open(path, **options) as records:
            shuffled = records.shuffle(seed=1)
            took = time.perf_counter()
            for _ in shuffled.batches(1024):
                pass
            found[f"anyrecord{name}"] = count / (time.perf_counter() - took)
    rows = [(name, [number(rate), number(rate * RECORD_BYTES / 1e6)]) for name, rate in found.items()]
    title = (
        f"one epoch in random order, {count:,} records once each (disk alone: io_uring and O_DIRECT on the same blocks)"
    )
    show(title, ["records a second", "MB/s"], rows)
    best = max((rate for name, rate in found.items() if name.startswith("disk")), default=None)
    if best is not None:
        direct = found['anyrecord, io="direct"']
        print(f'  io="direct" reaches {direct / best:.0%} of the best rate of the disk\n')
    return found


def blocks(starts: Sequence[int]) -> list[tuple[int, int]]:
    """The aligned blocks of the records that begin at these offsets."""
    return [device.aligned(start, start + RECORD_BYTES) for start in starts]


def make_cold(run: Run, path: Path) -> None:
    if not (run.drop_caches and forget_everything()):
        forget(path)


def disk_bytes() -> int:
    """The bytes that the system has read from disk for this process."""
    try:
        for line in Path("/proc/self/io").read_text().splitlines():
            if line.startswith("read_bytes:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
