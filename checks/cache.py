"""Processes share a cache half the size of the data, epoch after epoch, and are killed now and then.

No byte is wrong, nobody waits forever, and the folder stays within its limit and one block for each process.
"""

from __future__ import annotations

import io
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import anyrecord

from checks.child import LIMIT_SECONDS
from checks.figures import Figure
from checks.range_server import serve

__all__ = ["run"]

BLOCK = (1 << 20) + 4096
"""What a block takes on the disk."""
SUFFIXES = (".ffr", ".array_record", ".tfrecord", ".recordio")
BATCH = 64


@dataclass(frozen=True)
class Size:
    """How much is tried."""

    processes: int
    epochs: int
    kills: int
    record_bytes: int
    records: int
    """In each file."""


LONG = Size(processes=8, epochs=3, kills=24, record_bytes=20_000, records=800)
SHORT = Size(processes=3, epochs=2, kills=3, record_bytes=20_000, records=250)


def record(number: int, size: int) -> bytes:
    """The bytes of a record, other for each number."""
    return random.Random(number).randbytes(size)


def run(short: bool) -> list[Figure]:
    """Runs the processes."""
    size = SHORT if short else LONG
    files = {f"part{number}{suffix}": file_of(number, suffix, size) for number, suffix in enumerate(SUFFIXES)}
    limit = max(sum(map(len, files.values())) // 2, 4 * BLOCK)
    with tempfile.TemporaryDirectory() as folder, serve(files) as address:
        cache = Path(folder) / "cache"
        processes = Processes([f"{address}/{name}" for name in files], cache, limit, size)
        processes.run()
    return [
        Figure("records read by processes that share a cache", processes.read, processes.wrong),
        Figure("processes that read all epochs", processes.ended, processes.hung, size.processes),
        Figure("processes killed", processes.killed, [], size.kills),
        Figure("looks at the size of the cache", processes.looks, processes.too_large, size.epochs),
        Figure("reads that the cache served", processes.hits),
    ]


def file_of(number: int, suffix: str, size: Size) -> bytes:
    out = io.BytesIO()
    with anyrecord.create(out, format=anyrecord._core.format_of_suffix(f"a{suffix}")) as writer:
        first = number * size.records
        writer.write_many(record(i, size.record_bytes) for i in range(first, first + size.records))
    return out.getvalue()


@dataclass
class Child:
    """A process that reads, and what it has said last."""

    rank: int
    process: subprocess.Popen[bytes]
    heard: float = field(default_factory=time.monotonic)

    @property
    def pipe(self) -> IO[bytes]:
        assert self.process.stdout
        return self.process.stdout

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.pipe.close()


@dataclass
class Processes:
    """All processes, and what they found."""

    urls: Sequence[str]
    cache: Path
    limit: int
    size: Size
    read: int = 0
    hits: int = 0
    ended: int = 0
    killed: int = 0
    looks: int = 0
    wrong: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)

    def run(self) -> None:
        chance = random.Random(5)
        children = {rank: self._start(rank) for rank in range(self.size.processes)}
        said, every = 0, self._lines() // (self.size.kills + 1)
        try:
            while children:
                pipes = {child.pipe: child for child in children.values()}
                for pipe in select.select(list(pipes), [], [], 0.02)[0]:
                    child = pipes[pipe]
                    if children.get(child.rank) is not child:
                        continue  # killed a moment ago
                    self._hear(child, children)
                    said += 1
                    # One of them in the middle of its work, whichever it is then.
                    if children and self.killed < self.size.kills and said % every == 0:
                        self._kill(chance.choice(list(children.values())), children)
                self._look()
                for child in list(children.values()):
                    if time.monotonic() - child.heard > LIMIT_SECONDS:
                        self.hung.append(f"process {child.rank} hung for {LIMIT_SECONDS:.0f} seconds")
                        del children[child.rank]
                        child.end()
        finally:
            for child in children.values():
                child.end()

    def _lines(self) -> int:
        """How many lines the processes write if none is killed."""
        return self.size.processes * self.size.epochs * len(SUFFIXES) * self.size.records // BATCH

    def _start(self, rank: int) -> Child:
        job = json.dumps([self.urls, str(self.cache), self.limit, rank, self.size.epochs, self.size.record_bytes])
        paths = [str(Path(anyrecord.__file__).parents[1]), str(Path(__file__).parents[1])]
        return Child(
            rank,
            subprocess.Popen(
                [sys.executable, "-m", "checks.cache", job],
                stdout=subprocess.PIPE,
                bufsize=0,  # what is read, `select` sees
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            ),
        )

    def _hear(self, child: Child, children: dict[int, Child]) -> None:
        line = child.pipe.readline()
        child.heard = time.monotonic()
        if line:
            count, hits, wrong = json.loads(line)
            self.read += count
            self.hits += hits
            self.wrong += wrong
            return
        del children[child.rank]
        child.pipe.close()
        if status := child.process.wait():
            self.wrong.append(f"process {child.rank} ended with status {status}")
        else:
            self.ended += 1

    def _kill(self, child: Child, children: dict[int, Child]) -> None:
        child.end()
        self.killed += 1
        children[child.rank] = self._start(child.rank)

    def _look(self) -> None:
        try:
            with os.scandir(self.cache) as entries:
                total = sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in entries)
        except FileNotFoundError:  # not made yet, or a block that was deleted at that moment
            return
        self.looks += 1
        if total > self.limit + self.size.processes * BLOCK:
            self.too_large.append(f"{total:,} bytes, and the limit is {self.limit:,}")


def read_epochs(urls: list[str], cache: str, limit: int, rank: int, epochs: int, record_bytes: int) -> None:
    """Reads all epochs, and writes to stdout how many records were read and which were wrong."""
    records = anyrecord.open(urls, cache=cache, cache_folder_bytes=limit)
    hits = 0
    for epoch in range(epochs):
        order = list(range(len(records)))
        random.Random(f"{rank}.{epoch}").shuffle(order)
        for begin in range(0, len(order), BATCH):
            numbers = order[begin : begin + BATCH]
            found = [records[number] for number in numbers] if begin // BATCH % 3 == 0 else records[numbers]
            wrong = [
                f"record {number} is wrong in process {rank}, epoch {epoch}"
                for number, data in zip(numbers, found, strict=True)
                if data != record(number, record_bytes)
            ]
            now = records.stats().cache_hits
            print(json.dumps([len(numbers), now - hits, wrong]), flush=True)
            hits = now


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")  # files without a table are searched
    read_epochs(*json.loads(sys.argv[1]))
