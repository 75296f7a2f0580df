"""Opens, failed opens, writers and iterators that are dropped: nothing is left of them.

Each format, codec and `io` has a process of its own, in which each case runs many times. After a warm-up, the
descriptors, threads, memory maps, files in the folder and allocated bytes are counted. All allocations of Python and of
the core go through `malloc`, so a leak of a small object in each round shows.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import anyrecord
from anyrecord import Limits

from checks.child import LIMIT_SECONDS
from checks.figures import Figure
from checks.record_files import IOS, VARIANTS, Io, Variant, record, write

__all__ = ["measured", "run"]

RECORDS = 40
BYTES_A_ROUND = 8
"""The allocated bytes may grow by this much in a round: less than the smallest allocation."""
SLACK = 4000
"""And by this much in all rounds of a case: tables of the interpreter that grow now and then."""
ATTEMPTS = 10
"""What is measured once more grows again if it is a leak. What threads allocate is not the same each time."""

Act = Callable[[], object]


class _Allocated(ctypes.Structure):
    """The result of `mallinfo2`."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names.split())


def allocated() -> int:
    """Bytes that are allocated by `malloc` and not freed."""
    asked = ctypes.CDLL(None).mallinfo2
    asked.restype = _Allocated
    found = asked()
    return int(found.uordblks + found.hblkhd)


def counts(folder: Path) -> dict[str, int]:
    gc.collect()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "maps": sum(1 for line in Path("/proc/self/maps").read_text().splitlines() if ".mapped" in line),
        "files": len(os.listdir(folder)),
        "bytes": allocated(),
    }


def opened(path: Path, io: Io) -> Iterator[tuple[str, Act]]:
    """Ways to use a sound file."""

    def read_and_close() -> None:
        with anyrecord.open(path, io=io) as records:
            records[3]
            records[[1, 2]]

    def drop_midway() -> None:
        records = anyrecord.open(path, io=io)
        iterator, batches = iter(records), records.batches(7)
        next(iterator)
        next(iter(batches))
        records.buffer(5)

    yield "opens, with reads", read_and_close
    yield "opens, dropped with iterators and views midway", drop_midway


def failing(path: Path, variant: Variant) -> Iterator[tuple[str, Act]]:
    """Ways to fail to open a file, and to fail later."""
    folder, data = path.parent, path.read_bytes()
    cut, garbage, empty = (folder / f"{name}{variant.suffix}" for name in ("cut", "garbage", "empty"))
    flipped = folder / f"flipped{variant.suffix}"
    cut.write_bytes(data[: len(data) - 3])
    garbage.write_bytes(bytes(range(256)) * 40)
    empty.write_bytes(b"")
    flipped.write_bytes(bytes(byte ^ (0xFF if at % 500 == 250 else 0) for at, byte in enumerate(data)))
    target = folder / f"target{variant.suffix}"
    target.write_bytes(b"of somebody else")
    small = Limits(decoded_chunk_bytes=1, spool_bytes=1)

    def read_all(source: Path) -> None:
        for _ in anyrecord.open(source, limits=Limits(decoded_chunk_bytes=1 << 20)):
            pass

    yield "failed opens: no such file", lambda: anyrecord.open(folder / "missing.ffr")
    yield "failed opens: a folder without files", lambda: anyrecord.open(folder / "nothing")
    yield "failed opens: cut", lambda: anyrecord.open(cut)[RECORDS - 1]
    yield "failed opens: garbage", lambda: anyrecord.open(garbage)
    yield "failed opens: empty", lambda: anyrecord.open(empty, format="array_record")
    yield (
        "failed opens: another format",
        lambda: anyrecord.open(path, format="riegeli" if "ffr" in path.name else "ffrecord"),
    )
    yield "failed opens: one of several", lambda: anyrecord.open([path, path, garbage, path])
    yield "failed opens: the number of records", lambda: anyrecord.open(path, expected_records=7)
    yield "failed opens: a limit", lambda: read_all_limited(path, small)
    yield "failed opens: a file object", lambda: anyrecord.open(garbage.open("rb"))
    yield "damaged files that are read", lambda: read_all(flipped)
    yield "damaged files that are verified", lambda: anyrecord.verify(flipped, progress=None)
    yield "damaged files that are converted", lambda: anyrecord.convert(flipped, folder / "converted.ffr")
    yield "writers that may not overwrite", lambda: anyrecord.create(target, **variant.options)


def read_all_limited(path: Path, limits: Limits) -> None:
    for _ in anyrecord.open(path, limits=limits):
        pass


def writing(path: Path, variant: Variant) -> Iterator[tuple[str, Act]]:
    """Ways to write nothing."""
    target = path.with_name(f"written{variant.suffix}")

    def discard() -> None:
        out = anyrecord.create(target, **variant.options)
        out.write(record(3))
        out.discard()

    def drop() -> None:
        anyrecord.create(target, **variant.options).write(record(3))

    def drop_with_threads() -> None:
        out = anyrecord.create(target, threads=2, **variant.options)
        out.write_many([record(3)] * 20)

    def fail() -> None:
        with anyrecord.create(target, durable=False, **variant.options) as out:
            out.write(record(3))
            out.write(7)  # type: ignore[arg-type]

    yield "writers that are discarded", discard
    yield "writers that are dropped", drop
    yield "writers with threads that are dropped", drop_with_threads
    yield "writers that fail", fail


def repeat(act: Act, times: int) -> None:
    for _ in range(times):
        with contextlib.suppress(Exception):
            act()


def left_behind(act: Act, rounds: int, folder: Path) -> list[str]:
    """What there is more of after many rounds than after a few."""
    repeat(act, max(rounds // 5, 10))
    before = counts(folder)
    repeat(act, rounds)
    after = counts(folder)
    # Threads of a dropped writer end on their own.
    given_up = time.monotonic() + LIMIT_SECONDS
    while after["threads"] > before["threads"] and time.monotonic() < given_up:
        time.sleep(0.01)
        after = counts(folder)
    wrong = [
        f"{after[what] - before[what]} more {what}"
        for what in ("descriptors", "threads", "maps", "files")
        if after[what] > before[what]
    ]
    grown, most = [after["bytes"] - before["bytes"]], SLACK + BYTES_A_ROUND * rounds
    while grown[-1] > most and len(grown) < ATTEMPTS:
        last = counts(folder)["bytes"]
        repeat(act, rounds)
        grown.append(counts(folder)["bytes"] - last)
    if grown[-1] > most:
        wrong.append(f"{min(grown):,} more bytes, {most:,} are allowed")
    return [f"{what} after {rounds} rounds" for what in wrong]


def measure(variant: Variant, io: Io, rounds: int) -> dict[str, list[str]]:
    """Runs in a process of its own. What is left behind by each case."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "nothing").mkdir()
        path = write(Path(folder) / f"data.mapped{variant.suffix}", variant, range(RECORDS))
        acts = [*opened(path, io), *failing(path, variant), *writing(path, variant)]
        # The first round of each imports modules and starts the threads that the process keeps.
        for _, act in acts:
            repeat(act, 10)
        return {name: left_behind(act, rounds, Path(folder)) for name, act in acts}


def run(short: bool) -> list[Figure]:
    """Opens, failed opens, writers; all formats, codecs and `io`."""
    opens = Figure("opens", at_least=300 if short else 10_000)
    failures = Figure("failed opens", at_least=1000 if short else 10_000)
    others = Figure("dropped, discarded and failed writers, damaged files that are read, verified and converted")
    rounds = 15 if short else 120
    cells = list(itertools.product(VARIANTS, IOS))
    for number, (variant, io) in enumerate(cells):
        if short and number % 4 != number // 4 % 4:
            continue
        program = f"import json; from checks.leaks import *; print(json.dumps(measured({number}, {rounds})))"
        # The C library counts only one arena, so there must be only one.
        environment = {**os.environ, "PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "1"}
        command = [sys.executable, "-c", program]
        folder = Path(__file__).parents[1]
        name = f"{variant}, io={io}"
        try:
            ran = subprocess.run(
                command,
                env=environment,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=10 * LIMIT_SECONDS,
                check=True,
            )
        except subprocess.SubprocessError as error:
            opens.violations.append(f"{name}: {error} {getattr(error, 'stderr', '')}")
            continue
        for what, found in json.loads(ran.stdout).items():
            figure = opens if what.startswith("opens") else failures if what.startswith("failed") else others
            figure.tried += rounds
            figure.violations += [f"{name}, {what}: {wrong}" for wrong in found]
    return [opens, failures, others]


def measured(number: int, rounds: int) -> dict[str, list[str]]:
    """`measure` for the combination of that number."""
    variant, io = list(itertools.product(VARIANTS, IOS))[number]
    return measure(variant, io, rounds)
