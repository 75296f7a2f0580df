"""One reader in 16 threads: a million reads, each exact, and no thread waits for the read of another one."""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import anyrecord
from anyrecord import Limits, Records
from process.record_files import ScriptedFile

from checks.child import Died, in_child
from checks.figures import Figure
from checks.record_files import IOS, USUAL, VARIANTS, Io, Variant, record, write

__all__ = ["run"]

RECORDS = 300
THREADS = 16
BATCH = 40


def read_in_threads(path: Path, io: Io, reads: int) -> list[int]:
    """Runs in a child. How many records 16 threads of one reader read, and how many of them were wrong."""
    warnings.simplefilter("ignore")
    # A small cache: chunks are decoded, put and dropped by all threads at once.
    records = anyrecord.open(path, io=io, cache_bytes=100_000)
    together, counts, raised = threading.Barrier(THREADS), list[tuple[int, int]](), list[Exception]()

    def read(number: int) -> None:
        try:
            read_often(number)
        except Exception as error:
            raised.append(error)

    def read_often(number: int) -> None:
        source, done, wrong = random.Random(number), 0, 0
        together.wait()
        while done < reads // THREADS:
            index = source.randrange(RECORDS)
            wrong += records[index] != record(index)
            picked = source.choices(range(RECORDS), k=BATCH)
            wrong += sum(found != record(index) for found, index in zip(records[picked], picked, strict=True))
            done += 1 + BATCH
        counts.append((done, wrong))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
    return [sum(count) for count in zip(*counts, strict=True)]


READS: dict[str, Callable[[Records], object]] = {
    "one": lambda records: records[0],
    "a batch": lambda records: records[[0, 1]],
    "iteration": lambda records: next(iter(records)),
    "into memory": lambda records: records.read_into(bytearray(100_000), [0, 1]),
}


class Paused(ScriptedFile):
    """A file that waits in its next read until it may go on."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reading, self.go_on = threading.Event(), threading.Event()

    def pause(self) -> None:
        """Waits in the next read."""
        self.before_read = self._wait

    def _wait(self) -> None:
        self.reading.set()
        self.go_on.wait()


def others_run_during_a_slow_read(read: Callable[[Records], object], paths: list[Path]) -> bool:
    """Runs in a child. Another thread reads all of another file while `read` waits for its storage.

    If `read` held the GIL or a lock, the other thread would never let it go on, and the child would hang.
    """
    path = paths[0]
    file = Paused(path.read_bytes())
    slow, quick = anyrecord.open(cast(BinaryIO, file), cache_bytes=0), anyrecord.open(path, cache_bytes=0)
    both = quick + slow
    file.pause()
    thread = threading.Thread(target=lambda: read(both[RECORDS:]))
    thread.start()
    file.reading.wait()
    is_right = all(found == record(index) for index, found in enumerate(both[:RECORDS]))
    is_waiting = thread.is_alive()
    file.go_on.set()
    thread.join()
    return is_right and is_waiting


def others_run_during_a_slow_call(io: Io, read: Callable[[Records], object] | None, paths: list[Path]) -> bool:
    """Runs in a child. This thread runs while the system lets another one wait in `open`.

    A lease on the file makes the kernel hold whoever opens it until the lease is given up. This thread gives it up when
    it sees that somebody waits. If whoever opens the file held the GIL, this thread would see nothing, and after 45
    seconds the kernel would end the lease.
    """
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # with which the kernel asks for the lease
    act: Callable[[], object] = lambda: anyrecord.open(paths[0], io=io)[7]  # noqa: E731
    if read is not None:
        records = anyrecord.open(paths, io=io, limits=Limits(open_files=1), cache_bytes=0)
        assert records[RECORDS] == record(0)  # the other file has the one descriptor now
        act = lambda: read(records)  # noqa: E731
    descriptor = os.open(paths[0], os.O_RDWR)
    inode = os.fstat(descriptor).st_ino
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    thread = threading.Thread(target=act)
    thread.start()
    has_run = False
    while thread.is_alive() and not has_run:
        locks = Path("/proc/locks").read_text().splitlines()
        has_run = any("BREAKING" in lock and f":{inode} " in lock for lock in locks)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    thread.join()
    return has_run


def count_reads(figure: Figure, variant: Variant, io: Io, reads: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / f"data{variant.suffix}", variant, range(RECORDS))
        name = f"{variant}, io={io}"
        try:
            done, wrong = in_child(lambda: read_in_threads(path, io, reads))
        except Died as died:
            figure.violations.append(f"{name}: the process {died}")
            return
    figure.tried += done
    figure.violations += [f"{name}: {wrong} wrong records"] if wrong else []


def run(short: bool) -> list[Figure]:
    """Exact results of one reader in 16 threads; other threads run during a slow read."""
    exact = Figure("reads by 16 threads of one reader", at_least=100_000 if short else 17_000_000)
    for number, (variant, io) in enumerate(itertools.product(VARIANTS, IOS)):
        if not short or number % 4 == number // 4 % 4:
            is_counted_out = not short and variant in USUAL
            count_reads(exact, variant, io, 10_000 if short else 1_000_000 if is_counted_out else 30_000)
    slow = Figure("slow reads during which other threads ran", at_least=64)

    def expect(name: str, act: Callable[[list[Path]], bool], variant: Variant) -> None:
        slow.tried += 1
        with tempfile.TemporaryDirectory() as folder:
            paths = [write(Path(folder) / f"{n}{variant.suffix}", variant, range(RECORDS)) for n in (0, 1)]
            try:
                if not in_child(lambda: act(paths)):
                    slow.violations.append(f"{name}: the other thread did not run")
            except Died as died:
                slow.violations.append(f"{name}: the process {died}")

    for variant, (name, read) in itertools.product(USUAL, READS.items()):
        expect(f"{name} of a slow file object, {variant}", partial(others_run_during_a_slow_read, read), variant)
    for variant, io in itertools.product(USUAL, IOS):
        expect(f"opening of {variant}, io={io}", partial(others_run_during_a_slow_call, io, None), variant)
        if io in ("plain", "direct"):
            for name, read in READS.items():
                expect(f"{name} of {variant}, io={io}", partial(others_run_during_a_slow_call, io, read), variant)
    return [exact, slow]
