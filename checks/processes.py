"""Forks, spawns and ends processes while threads read, write and convert.

Children read the right records at once, and nothing hangs. The interpreter ends with the right exit code at any moment,
says nothing of its own, and leaves no half-written file under its final name.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyrecord
from anyrecord import Records

from checks.child import LIMIT_SECONDS, Died, in_child
from checks.figures import Figure
from checks.record_files import IOS, USUAL, VARIANTS, Io, Variant, record, write

__all__ = ["run"]

RECORDS = 120
READERS = 4
MANY = list(range(RECORDS)) * 4
"""So many records that they are decoded in several threads."""


def wrong_reads(records: Records, seed: int) -> int:
    """How many records are wrong, of many that are read in every way, also by threads and from a new reader."""
    source = random.Random(seed)
    picked = source.choices(range(RECORDS), k=20)
    first = picked[0]
    wrong = sum(records[index] != record(index) for index in picked)
    wrong += records[picked] != [record(index) for index in picked]
    wrong += list(records[first:]) != [record(index) for index in range(first, RECORDS)]
    wrong += bytes(records.buffer(first)) != record(first)
    return wrong


def read_in_child(records: Records, iterator: Iterator[bytes], taken: int, seed: int) -> int:
    """How many reads of a new process are wrong: at once, in threads, from an iterator that the parent began."""
    wrong = wrong_reads(records, seed)
    wrong += list(iterator) != [record(index) for index in range(taken, RECORDS)]
    with ThreadPoolExecutor(READERS) as pool:
        wrong += sum(pool.map(lambda number: wrong_reads(records, seed + number), range(READERS)))
    wrong += records[MANY] != [record(index) for index in MANY]
    with anyrecord.open(records.paths) as own:
        return wrong + wrong_reads(own, seed)


@contextmanager
def threads_reading(records: Records) -> Iterator[list[str]]:
    """Other threads read as long as the block runs. Yields what they found wrong."""
    is_over, wrong, started = threading.Event(), list[str](), threading.Barrier(READERS + 1)

    def read(seed: int) -> None:
        started.wait()
        while not is_over.is_set():
            seed += READERS
            try:
                if wrong_reads(records, seed):
                    wrong.append("a thread of the parent read a wrong record")
            except BaseException as error:
                wrong.append(f"a thread of the parent raised {error!r}")

    threads = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
    for thread in threads:
        thread.start()
    started.wait()
    try:
        yield wrong
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def fork_often(variant: Variant, io: Io, times: int, folder: Path) -> list[str]:
    """Runs in a child. Forks while threads read."""
    warnings.simplefilter("ignore")
    path = write(folder / f"data{variant.suffix}", variant, range(RECORDS))
    # Parent and children decode in several threads. Each process must start its own.
    records = anyrecord.open(path, io=io, threads=3)
    with threads_reading(records) as wrong:
        for number in range(times):
            iterator, taken = iter(records), number % RECORDS
            for _ in range(taken):
                next(iterator)
            try:
                bad = in_child(lambda: read_in_child(records, iterator, taken, number), 0.5)  # noqa: B023 (called at once)
                wrong += [f"fork {number}: {bad} reads were wrong"] if bad else []
            except Died as died:
                wrong.append(f"fork {number}: the child {died}")
                break
    return wrong


def _started(records: Records, state: dict[str, Any], taken: int, seed: int) -> None:
    """The target of `multiprocessing`."""
    warnings.simplefilter("ignore")
    sys.exit(1 if read_in_child(records, records.resume(state), taken, seed) else 0)


def start_often(way: str, times: int, folder: Path) -> list[str]:
    """Starts processes by `spawn` or `forkserver` while threads read."""
    context, wrong = multiprocessing.get_context(way), list[str]()
    for number, (variant, io) in zip(range(times), itertools.cycle(itertools.product(USUAL, IOS)), strict=False):
        path = folder / f"{way}{variant.suffix}"
        if not path.exists():
            write(path, variant, range(RECORDS))
        with anyrecord.open(path, io=io) as records, threads_reading(records) as found:
            iterator = iter(records)
            next(iterator)
            arguments = (records, iterator.state_dict(), 1, number)
            child = context.Process(target=_started, args=arguments)  # type: ignore[attr-defined]
            child.start()
            child.join(LIMIT_SECONDS)
            if child.exitcode is None:
                child.kill()
                child.join()
                wrong.append(f"{way} {number} of {variant}, io={io}: the child hung")
            elif child.exitcode:
                wrong.append(f"{way} {number} of {variant}, io={io}: the child ended with {child.exitcode}")
        wrong += found
    return wrong


WORK = {
    "single reads": "[records[i] for i in range(0, 120, 3)]",
    "batches": "records[list(range(120))]",
    "iteration": "list(records)",
    "buffers": "[bytes(records.buffer(i)) for i in range(0, 120, 3)]",
    "opening": "anyrecord.open(path)[7]",
    "verification": "anyrecord.verify(path)",
    "writing": "written(name(), records)",
    "conversion": "anyrecord.convert(path, name(), overwrite=True, durable=False)",
    "conversion to shards": "anyrecord.convert(path, 'set' + name(), overwrite=True, durable=False, shards=3)",
}
"""What daemon threads do until the program ends."""

ENDINGS = {
    "the end of the program": ("pass", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(4)", 4),
    "an exception": ("raise LookupError('of the program')", 1),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); threading.Event().wait()", -signal.SIGTERM),
    "SIGINT": ("os.kill(os.getpid(), signal.SIGINT); threading.Event().wait()", -signal.SIGINT),
}

PROGRAM = """
import itertools, os, signal, sys, threading, warnings
import anyrecord
warnings.simplefilter("ignore")
signal.signal(signal.SIGINT, signal.default_int_handler)
path, io, moment, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), 4
records = anyrecord.open(path, io=io, cache_bytes=0)
suffix = os.path.splitext(path)[1]
steps, enough = itertools.count(1), threading.Event()
numbers = itertools.count()
def name(): return f"out-{{next(numbers) % 6}}{{suffix}}"
def written(name, records):
    with anyrecord.create(f"{{threading.get_ident()}}-{{name}}", overwrite=True, durable=False) as out:
        for record in records: out.write(record)
def run():
    while True:
        if next(steps) >= moment: enough.set()
        try: {work}
        except anyrecord.ClosedError: pass  # a writer is discarded at the end of the program
for _ in range(threads): threading.Thread(target=run, daemon=True).start()
enough.wait()
{ending}
"""

COMPLAINTS = ("Fatal Python error", "panicked", "Segmentation", "Aborted", "core dumped", "terminate called")


def exit_once(work: str, ending: str, variant: Variant, io: Io, moment: int, folder: Path) -> list[str]:
    """Runs a program that ends while its threads work."""
    path = folder / f"data{variant.suffix}"
    if not path.exists():
        write(path, variant, range(RECORDS))
    statement, expected = ENDINGS[ending]
    program = PROGRAM.format(work=WORK[work], ending=statement)
    command = [sys.executable, "-c", program, path.name, io, str(moment)]
    with (folder / "said").open("w+") as said:
        running = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said)
        try:
            code = running.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            return [f"hung for {LIMIT_SECONDS:.0f} seconds"]
        said.seek(0)
        text = said.read()
    wrong = [] if code == expected else [f"ended with {code} instead of {expected}: {text[-500:]}"]
    wrong += [f"said {text[-500:]}" for complaint in COMPLAINTS if complaint in text]
    return wrong + half_written(folder)


def half_written(folder: Path) -> list[str]:
    """What is wrong with the files that the program left under their final names.

    A thread that was stopped in the middle of a write leaves its temporary file. The next writer of that name or
    `anyrecord.recover` removes it.
    """
    names = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".") and path.name != "said"]
    wrong = []
    for path in names:
        if not (report := anyrecord.verify(path)):
            wrong.append(f"left a damaged {path.name}: {report}")
        # Each is a copy of all records. A set of shards may be incomplete until `recover` finishes it.
        elif "-of-" not in path.name and (count := len(anyrecord.open(path))) != RECORDS:
            wrong.append(f"left {path.name} with {count} of {RECORDS} records")
    return wrong


def run(short: bool) -> list[Figure]:
    """Forks, spawns, forkservers; exits of the interpreter."""
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork with threads, which is the test
    forks = Figure("forks while threads read", at_least=30 if short else 1600)
    for number, (variant, io) in enumerate(itertools.product(VARIANTS, IOS)):
        if short and number % 5:  # each format, and each `io` several times
            continue
        times = 3 if short else 100 if variant in USUAL else 10
        with tempfile.TemporaryDirectory() as folder:
            try:
                wrong = in_child(lambda: fork_often(variant, io, times, Path(folder)))  # noqa: B023 (called at once)
            except Died as died:
                wrong = [f"the parent {died}"]
        forks.tried += times
        forks.violations += [f"{variant}, io={io}: {what}" for what in wrong]
    figures = [forks]
    for way in ("spawn", "forkserver"):
        started = Figure(f"processes started by {way} while threads read", at_least=3 if short else 100)
        started.tried = 3 if short else 112
        with tempfile.TemporaryDirectory() as folder:
            started.violations = start_often(way, started.tried, Path(folder))
        figures.append(started)
    exits = Figure("ends of the interpreter while daemon threads work", at_least=18 if short else 400)
    source = random.Random(3)
    for number, (work, ending) in enumerate(itertools.product(WORK, ENDINGS)):
        if short and number % 3 != number // 6 % 3:
            continue
        for _ in range(1 if short else 8):
            variant, io = source.choice(VARIANTS), source.choice(IOS)
            moment = source.choice((1, 2, 5, 20, 60))
            with tempfile.TemporaryDirectory() as folder:
                wrong = exit_once(work, ending, variant, io, moment, Path(folder))
            exits.tried += 1
            name = f"{ending} during {work} of {variant}, io={io}, moment {moment}"
            exits.violations += [f"{name}: {what}" for what in wrong]
    return [*figures, exits]
