"""How many simulated accelerators one machine keeps busy, much as MLPerf Storage counts them.

A simulated accelerator is a process that takes a batch and sleeps for as long as a real one would compute. It is busy
if it sleeps at least 90 % of the time. The files are in the page cache, so the loader is measured, not the disk. Each
accelerator reads the whole data set in a random order of its own, so a data set can be small.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import mean
from typing import Any

from benches import machine
from benches.goals import BUSY, times
from benches.loaders import warm
from benches.results import Run
from benches.tables import number, show

MOST = 512
"""More accelerators are not tried."""
START_SECONDS = 300.0
TF_SHARDS = 16
TF_SHUFFLE_BYTES = 64_000_000
"""tf.data shuffles what is in a buffer of about this size."""


@dataclass(frozen=True)
class Workload:
    """What an accelerator asks for.

    The figures are those of MLPerf Storage for an H100: `configs/dlio/workload/*_h100.yaml` in
    https://github.com/mlcommons/storage (record_length_bytes, batch_size, computation_time). Sizes do not vary here.
    MLPerf Storage asks for 90 % in unet3d and resnet50, and for 70 % in cosmoflow; here it is 90 % in all. Its rules
    also ask for data that does not fit in memory, and for 500 steps.
    """

    name: str
    record_bytes: int
    batch: int
    computation_seconds: float
    records: int
    steps: int

    @property
    def batch_bytes(self) -> int:
        return self.record_bytes * self.batch


WORKLOADS = [
    Workload("resnet50", 114_660, 400, 0.224, records=40_000, steps=20),
    Workload("cosmoflow", 2_828_486, 1, 0.0035, records=1_600, steps=800),
    Workload("unet3d", 146_600_628, 7, 0.323, records=42, steps=12),
]


@dataclass(frozen=True)
class Way:
    """A loader: how it writes the records of a workload, and how an accelerator gets its batches."""

    name: str
    package: str
    suffix: str
    write: Callable[[Path, Workload], None]
    batches: Callable[[Path, Workload, int], Iterator[Any]]
    """Endless. It gets the number of the accelerator."""


class Failed(Exception):
    """A loader does not even work for one accelerator."""


def records_of(workload: Workload) -> Iterator[bytes]:
    chance = random.Random(5)
    pool = chance.randbytes(8_000_000) * (2 + workload.record_bytes // 8_000_000)
    for _ in range(workload.records):
        at = chance.randrange(8_000_000)
        yield pool[at : at + workload.record_bytes]


def write_ours(path: Path, workload: Workload, **options: Any) -> None:
    import anyrecord

    with anyrecord.create(path, durable=False, num_records=workload.records, **options) as out:
        for record in records_of(workload):
            out.write(record)


def loader(path: Path, workload: Workload, rank: int) -> Iterator[Any]:
    """Packed batches of our loader, with its default options."""
    from anyrecord.torch import Loader

    made: Any = Loader(path, workload.batch, shuffle=True, seed=rank, collate="packed", drop_last=True)
    for epoch in itertools.count():
        made.set_epoch(epoch)
        yield from made


def write_array_record(path: Path, workload: Workload) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for record in records_of(workload):
        writer.write(record)
    writer.close()


def packed(records: list[bytes]) -> Any:
    """One tensor of a batch: worker processes hand tensors over in shared memory, but bytes through a pipe."""
    import torch

    return torch.frombuffer(bytearray().join(records), dtype=torch.uint8)


def data_loader(path: Path, workload: Workload, rank: int, *, workers: int) -> Iterator[Any]:
    import torch
    from array_record.python.array_record_data_source import ArrayRecordDataSource
    from torch.utils.data import DataLoader

    torch.manual_seed(rank)
    made: Any = DataLoader(
        ArrayRecordDataSource(str(path)),
        batch_size=workload.batch,
        shuffle=True,
        num_workers=workers,
        collate_fn=packed,
        drop_last=True,
        persistent_workers=workers > 0,
    )
    while True:
        yield from made


def tf_data(path: Path, workload: Workload, rank: int) -> Iterator[Any]:
    import tensorflow as tf

    files = tf.data.Dataset.list_files(str(path.with_name("train-*")), seed=rank).repeat()
    data = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    data = data.shuffle(max(2, TF_SHUFFLE_BYTES // workload.record_bytes), seed=rank)
    yield from data.batch(workload.batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


ARRAY_RECORD: dict[str, Any] = {"codec": "none", "group_size": 1}
WAYS = [
    Way("anyrecord Loader, FFRecord", "anyrecord", ".ffr", write_ours, loader),
    Way("anyrecord Loader, ArrayRecord", "anyrecord", ".array_record", partial(write_ours, **ARRAY_RECORD), loader),
    *(
        Way(
            f"array_record, torch DataLoader, {workers} workers",
            "array_record",
            ".array_record",
            write_array_record,
            partial(data_loader, workers=workers),
        )
        for workers in (0, 2, 4)
    ),
    Way("TFRecord, tf.data", "tensorflow", ".tfrecord", partial(write_ours, shards=TF_SHARDS), tf_data),
]


def main(run: Run) -> dict[str, Any] | None:
    """Prints how many accelerators are busy, by workload and loader. Returns these."""
    if find_spec("torch") is None:
        print("PyTorch is missing: pip install torch\n")
        return None
    print(f"{machine.cores()} cores; data made on the spot and in the page cache; each accelerator is a process")
    print(f"busy: computing at least {BUSY:.0%} of the time from the first batch on, all accelerators together")
    ways = []
    for way in WAYS:
        if find_spec(way.package):
            ways.append(way)
        else:
            print(f"# {way.name} is left out: {way.package} is not installed")
    print()
    found = {}
    for workload in WORKLOADS:
        if run.only in workload.name:
            found[workload.name] = measure(run, reduced(workload) if run.quick else workload, ways)
            report(workload, found[workload.name])
    return found


def reduced(workload: Workload) -> Workload:
    """A shorter run on less data."""
    records = max(2 * workload.batch, workload.records // 10)
    return Workload(
        workload.name,
        workload.record_bytes,
        workload.batch,
        workload.computation_seconds,
        records,
        max(4, workload.steps // 4),
    )


def measure(run: Run, workload: Workload, ways: list[Way]) -> dict[str, Any]:
    """For each loader: the most accelerators that are busy, and the share of time of every number that was tried."""
    found: dict[str, Any] = {}
    folder, written = run.folder / workload.name, None
    for way in ways:
        path = folder / f"train{way.suffix}"
        if written is not way.write:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            way.write(path, workload)
            written = way.write
        for file in folder.iterdir():
            warm(file)
        tried: dict[int, float] = {}
        try:
            most = most_busy(partial(busy, way, path, workload, tried))
        except Failed as error:
            if way.package == "anyrecord":
                raise
            print(f"# {error}: it is left out")
            continue
        found[way.name] = {"accelerators": most, "tried": {str(count): share for count, share in tried.items()}}
    shutil.rmtree(folder)
    return found


def most_busy(is_busy: Callable[[int], bool]) -> int:
    """The most accelerators that are busy: doubled until they are not, then halving what is between.

    >>> most_busy(lambda count: count <= 11)
    11
    >>> most_busy(lambda count: False)
    0
    """
    good, bad = 0, 1
    while bad <= MOST and is_busy(bad):
        good, bad = bad, bad * 2
    bad = min(bad, MOST + 1)
    # A difference of a few per cent is noise.
    while bad - good > max(1, good // 16):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if is_busy(middle) else (good, middle)
    return good


def busy(way: Way, path: Path, workload: Workload, tried: dict[int, float], count: int) -> bool:
    """Whether so many accelerators are busy. Notes their share of time."""
    share = utilisation(way, path, workload, count)
    if share is None:
        if count == 1:
            raise Failed(f"{way.name} failed")
        share = 0.0  # such as without enough memory for all of them
    tried[count] = share
    print(f"# {workload.name}, {way.name}: {count} accelerators compute {share:.1%} of the time", flush=True)
    return share >= BUSY


def utilisation(way: Way, path: Path, workload: Workload, count: int) -> float | None:
    """The share of the time in which accelerators compute, of so many at once. None if one of them failed."""
    # Children are forked from a small process that has imported PyTorch, so they start soon and share its memory.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "anyrecord.torch", __name__])
    pipes, children = [], []
    for rank in range(count):
        here, there = context.Pipe()
        # Not a daemon: those may not have worker processes.
        child = context.Process(target=accelerator, args=(there, WAYS.index(way), path, workload, rank))
        child.start()
        there.close()
        pipes.append(here)
        children.append(child)
    try:
        for pipe in pipes:
            if not pipe.poll(START_SECONDS):
                return None
            pipe.recv()
        for pipe in pipes:
            pipe.send("go")
        return mean([float(pipe.recv()) for pipe in pipes])
    except (EOFError, ConnectionError):
        return None
    finally:
        for pipe in pipes:
            pipe.close()
        for child in children:
            child.join(START_SECONDS)
            if child.is_alive():
                child.kill()


def accelerator(pipe: Connection, way: int, path: Path, workload: Workload, rank: int) -> None:
    """One accelerator: says that it has its first batch, waits for the others, computes, and says how busy it was."""
    batches = WAYS[way].batches(path, workload, rank)
    next(batches)
    pipe.send("ready")
    pipe.recv()
    begin = time.perf_counter()
    for _ in range(workload.steps):
        time.sleep(workload.computation_seconds)
        next(batches)
    pipe.send(workload.steps * workload.computation_seconds / (time.perf_counter() - begin))


def report(workload: Workload, found: dict[str, Any]) -> None:
    rate = workload.batch_bytes / workload.computation_seconds
    rows = []
    for name, row in found.items():
        one = f"{row['tried']['1']:.0%}"
        rows.append((name, [str(row["accelerators"]), number(row["accelerators"] * rate / 1e9), one]))
    title = (
        f"{workload.name}: batches of {workload.batch} records of {workload.record_bytes:,} bytes, "
        f"{workload.computation_seconds * 1e3:g} ms of computing each"
    )
    show(title, ["busy accelerators", "GB/s", "a single one computes"], rows)
    ours = [row["accelerators"] for name, row in found.items() if name.startswith("anyrecord")]
    others = [row["accelerators"] for name, row in found.items() if not name.startswith("anyrecord")]
    if others and max(others):
        print(f"  our slower format keeps {times(min(ours) / max(others))} as many busy as the best of the others\n")
