"""How many simulated accelerators one machine keeps busy, much as MLPerf Storage counts them.

A simulated accelerator is a process that takes a batch and sleeps for as long as a real one would compute. MLPerf
Storage calls the share of time in which it computes its utilization, AU. Its rules and DLIO, which measures it, define:

    AU = number of steps * computation time of a step / time that these steps took

The first step of an epoch does not count, because loading starts with it. The AU of a run is the mean of all
accelerators. It has to be at least 90 %.

It is the same here, with these differences:

- The files are in the page cache, so the loader is measured, not the disk. Each accelerator reads the whole data set in
  a random order of its own, so a data set can be small.
- An epoch repeats the data set until it is longer than the run. In MLPerf Storage an epoch has at least 500 steps, so
  the wait at its start is not noticed. A small data set has 2 steps, and a loader would start anew after each 2.
- Runs are short, and the first batches were loaded ahead while the accelerators waited for each other. So not only the
  first step is left out, but the first third.
- Accelerators that have finished go on until all have, so that the last ones do not have the machine for themselves.
- The computation time of a step is the one that was asked for, as in the rules. DLIO measures how long the sleep took,
  which is longer on a machine that is too busy.
- Accelerators do not wait for each other after each step. In DLIO they do, as in training with several of them.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
MEMORY_SHARE = 0.8
"""How much of the free memory the batches of all accelerators may take."""
SPARE = 8
"""An epoch has so many more batches than are timed: what a loader loads ahead at the end of the run."""
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
    also ask for data that does not fit in memory.
    """

    name: str
    record_bytes: int
    batch: int
    computation_seconds: float
    records: int
    steps: int
    """These are timed."""

    @property
    def batch_bytes(self) -> int:
        return self.record_bytes * self.batch

    @property
    def untimed(self) -> int:
        """How many steps come before the timed ones."""
        return max(1, self.steps // 2)

    @property
    def repeats(self) -> int:
        """How often the data set is in an epoch, so that the run is a part of one epoch."""
        return -(-(self.untimed + self.steps + SPARE) * self.batch // self.records)


WORKLOADS = [
    Workload("resnet50", 114_660, 400, 0.224, records=40_000, steps=20),
    Workload("cosmoflow", 2_828_486, 1, 0.0035, records=1_600, steps=800),
    Workload("unet3d", 146_600_628, 7, 0.323, records=42, steps=20),
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
    held: int = 3
    """How many batches an accelerator has in memory: those that are loaded ahead, and the one in use."""


class Failed(Exception):
    """A loader does not work."""


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

    data = [path] * workload.repeats
    made: Any = Loader(data, workload.batch, shuffle=True, seed=rank, collate="packed", drop_last=True)
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
    """One tensor of a batch. A worker process makes it in shared memory, as PyTorch's `default_collate` does."""
    import numpy
    import torch
    from torch.utils.data import get_worker_info

    size = sum(map(len, records))
    if get_worker_info() is None:
        made = torch.empty(size, dtype=torch.uint8)
    else:
        made = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(size))
    numpy.concatenate([numpy.frombuffer(record, numpy.uint8) for record in records], out=made.numpy())
    return made


def data_loader(path: Path, workload: Workload, rank: int, *, workers: int) -> Iterator[Any]:
    import torch
    from array_record.python.array_record_data_source import ArrayRecordDataSource
    from torch.utils.data import DataLoader

    # It warns if there are more workers than cores.
    warnings.filterwarnings("ignore", "This DataLoader will create")
    torch.manual_seed(rank)
    made: Any = DataLoader(
        ArrayRecordDataSource([str(path)] * workload.repeats),
        batch_size=workload.batch,
        shuffle=True,
        num_workers=workers,
        collate_fn=packed,
        drop_last=True,
        persistent_workers=True,
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
            held=1 + 3 * workers,
        )
        for workers in (2, 4, 8)
    ),
    Way("TFRecord, tf.data", "tensorflow", ".tfrecord", partial(write_ours, shards=TF_SHARDS), tf_data),
]


def main(run: Run) -> dict[str, Any] | None:
    """Prints how many accelerators are busy, by workload and loader. Returns these."""
    if find_spec("torch") is None:
        print("PyTorch is missing: pip install torch\n")
        return None
    print(f"{machine.cores()} cores; data made on the spot and in the page cache; each accelerator is a process")
    print(f"busy: computing at least {BUSY:.0%} of the time, the mean of all accelerators, without the first steps")
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
    return replace(workload, records=records, steps=workload.steps // 2)


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
        try:
            found[way.name] = search(way, path, workload)
        except Failed as error:
            if way.package == "anyrecord":
                raise
            print(f"# {error}: it is left out")
    shutil.rmtree(folder)
    return found


def search(way: Way, path: Path, workload: Workload) -> dict[str, Any]:
    """The most accelerators that are busy, the most there is memory for, and the AU of every number that was tried."""
    free = machine.available_bytes() - sum(file.stat().st_size for file in path.parent.iterdir())
    most = min(MOST, int(MEMORY_SHARE * free / (way.held * workload.batch_bytes)))
    if most < 1:
        raise Failed(f"{way.name}: there is not enough memory for the batches of one accelerator")
    tried: dict[int, float] = {}

    def share(count: int) -> float:
        seconds = run_accelerators(way, path, workload, count)
        if seconds is None and count == 1:
            raise Failed(f"{way.name} failed")
        computing = workload.steps * workload.computation_seconds
        # They can fail together, such as without enough memory for all of them.
        tried[count] = mean([computing / each for each in seconds]) if seconds else 0.0
        print(f"# {workload.name}, {way.name}: {count} compute {tried[count]:.1%} of the time", flush=True)
        return tried[count]

    def guess() -> int:
        """How many would be busy if the machine delivered as much as it does without any computing."""
        seconds = run_accelerators(way, path, replace(workload, computation_seconds=0), min(most, machine.cores()))
        batches = sum(workload.steps / each for each in seconds or [])
        return int(batches * workload.computation_seconds / BUSY)

    return {
        "accelerators": most_busy(share, most, guess),
        "most": most,
        "tried": {str(count): share for count, share in tried.items()},
    }


def most_busy(share: Callable[[int], float], most: int, guess: Callable[[], int]) -> int:
    """The most accelerators that are busy. A run takes seconds, so it begins with a guess.

    >>> most_busy(lambda count: min(1, 10 / count), 512, lambda: 14)
    11
    >>> most_busy(lambda count: 0.5, 512, lambda: 14)
    0
    """
    if share(1) < BUSY:
        return 0
    good, bad = 1, most + 1
    at, step = guess(), 0
    # A difference of a few per cent is noise.
    while bad - good > max(1, good // 16):
        at = min(max(at, good + 1), bad - 1)
        found = share(at)
        if found >= BUSY:
            good, step = at, max(2 * step, at // 8 + 1)
            at = min(good + step, (good + bad) // 2)
        else:
            bad, step = at, 0
            # If the machine delivers as much to fewer accelerators, so many are busy.
            at = min(int(at * found / BUSY), at - at // 16) if found else (good + bad) // 2
    return good


def run_accelerators(way: Way, path: Path, workload: Workload, count: int) -> list[float] | None:
    """The seconds that the timed steps take for each of so many accelerators at once. None if one of them failed."""
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
        seconds = [float(pipe.recv()) for pipe in pipes]
        for pipe in pipes:
            pipe.send("stop")
        return seconds
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
    """One accelerator: gets its first batch, waits for the others, and says how long the timed steps took."""
    batches = WAYS[way].batches(path, workload, rank)

    def step() -> None:
        batch = next(batches)
        time.sleep(workload.computation_seconds)
        del batch  # not before: computing needs it

    next(batches)
    pipe.send("ready")
    pipe.recv()
    for _ in range(workload.untimed):
        step()
    begin = time.perf_counter()
    for _ in range(workload.steps):
        step()
    pipe.send(time.perf_counter() - begin)
    while not pipe.poll():  # also true if the other end is closed
        step()


def report(workload: Workload, found: dict[str, Any]) -> None:
    rate = workload.batch_bytes / workload.computation_seconds
    rows = []
    for name, row in found.items():
        one = f"{row['tried']['1']:.0%}"
        count = f"{row['accelerators']}{' (memory is full)' if row['accelerators'] == row['most'] < MOST else ''}"
        rows.append((name, [count, number(row["accelerators"] * rate / 1e9), one]))
    title = (
        f"{workload.name}: batches of {workload.batch} records of {workload.record_bytes:,} bytes, "
        f"{workload.computation_seconds * 1e3:g} ms of computing each"
    )
    show(title, ["busy accelerators", "GB/s", "a single one computes"], rows)
    ours = [row["accelerators"] for name, row in found.items() if name.startswith("anyrecord")]
    others = [row["accelerators"] for name, row in found.items() if not name.startswith("anyrecord")]
    if others and max(others):
        print(f"  our slower format keeps {times(min(ours) / max(others))} as many busy as the best of the others\n")
