"""Replaces, deletes, truncates and overwrites a file while 16 threads read it.

A read gives the right record or an error with a name. It never gives other bytes, and nothing crashes or hangs. Each
case runs in a child process of its own.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import queue
import random
import select
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyrecord
from anyrecord import Limits, Records

from checks.child import Died, in_child
from checks.figures import Figure
from checks.record_files import IOS, USUAL, VARIANTS, Io, Variant, record, write

__all__ = ["run"]

RECORDS = 120
OTHERS = 5000
"""The numbers of the records in the file that takes the place of the first one begin here."""
THREADS = 16
ATTACKS = ("replace", "delete", "truncate", "scribble")
FAULTHANDLER = ("off", "before", "after")

Found = Iterator[tuple[int, bytes]]


def one_by_one(records: Records, picked: list[int]) -> Found:
    for index in picked:
        yield index, records[index]


def in_a_batch(records: Records, picked: list[int]) -> Found:
    yield from zip(picked, records[picked], strict=True)


def in_order(records: Records, picked: list[int]) -> Found:
    first = picked[0]
    yield from enumerate(records[first : first + 30], first)


def in_batches(records: Records, picked: list[int]) -> Found:
    first = picked[0]
    for number, batch in enumerate(records[first : first + 30].batches(17)):
        yield from enumerate(batch, first + 17 * number)


def into_memory(records: Records, picked: list[int]) -> Found:
    out = bytearray(sum(len(record(index)) for index in picked))
    offsets = records.read_into(out, picked)
    for place, index in enumerate(picked):
        yield index, bytes(out[offsets[place] : offsets[place + 1]])


def in_place(records: Records, picked: list[int]) -> Found:
    for index in picked:
        yield index, bytes(records.buffer(index))


WAYS: tuple[Callable[[Records, list[int]], Found], ...] = (
    one_by_one,
    in_a_batch,
    in_order,
    in_batches,
    into_memory,
    in_place,
)


@dataclass(frozen=True)
class Case:
    variant: Variant
    io: Io
    attack: str
    checksums: bool
    faulthandler: str

    def __str__(self) -> str:
        checksums = "" if self.checksums else ", checksums off"
        return f"{self.attack} of {self.variant}, io={self.io}{checksums}, faulthandler {self.faulthandler}"

    def promises(self, way: Callable[[Records, list[int]], Found], is_quiet: bool) -> bool:
        """Whether the bytes that this way of reading returns are always right. `is_quiet`: nothing changed meanwhile.

        A view is not checked, and shows what the file holds now. Without checksums, nobody can tell that bytes were
        overwritten, and the system may give zeros to a read that runs while the file is cut.
        """
        if self.attack in ("replace", "delete"):
            return True
        return way is not in_place and (self.checksums or (self.is_cut() and is_quiet))

    def is_cut(self) -> bool:
        return self.attack in ("truncate", "clear")

    def ways(self) -> tuple[Callable[[Records, list[int]], Found], ...]:
        """How the threads read. After `clear`, only the first read could give zeros. In a batch, an error of the second
        one would hide them."""
        return (one_by_one,) if self.attack == "clear" else WAYS

    def pauses(self) -> bool:
        """Whether nobody reads while the file is changed. Then every read gives what is promised."""
        return self.is_cut() and not self.checksums

    def may_fail(self) -> bool:
        return self.is_cut() or self.attack == "scribble"


class Readers:
    """Sixteen threads that read until they are told to stop. They count, and note what must not happen."""

    def __init__(self, case: Case, records: Records) -> None:
        self.case, self.records = case, records
        self.reads: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.is_over = False
        self.moment = 0
        """Odd while the file is being changed, or has zeros where records were."""
        self.rounds: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.may_read = threading.Event()
        self.may_read.set()
        self.busy = [threading.Lock() for _ in range(THREADS)]
        """Each thread holds its own while it reads."""
        self.threads = [threading.Thread(target=self.read, args=(number,), daemon=True) for number in range(THREADS)]
        for thread in self.threads:
            thread.start()

    def wait(self, rounds: int) -> None:
        """Until that many more rounds have been begun and read, in any threads."""
        with suppress(queue.Empty):
            while True:
                self.rounds.get_nowait()  # of the time before
        for _ in range(THREADS + rounds):  # one of each thread may have begun before
            self.rounds.get()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No thread reads inside the block."""
        self.may_read.clear()
        with ExitStack() as held:
            for lock in self.busy:
                held.enter_context(lock)
            yield
        self.may_read.set()

    def stop(self) -> None:
        self.is_over = True
        for thread in self.threads:
            thread.join()

    def read(self, number: int) -> None:
        source, own = random.Random(number), Counter[str]()
        try:
            while not self.is_over:
                way = source.choice(self.case.ways())
                self.may_read.wait()
                with self.busy[number]:
                    self.read_once(way, source.choices(range(RECORDS), k=9), own)
                self.rounds.put(number)
        except BaseException as error:  # a panic of the core is no Exception
            self.wrong.append(f"{error!r} in thread {number}")
        self.reads.update(own)
        self.rounds.put(number)

    def read_once(self, way: Callable[[Records, list[int]], Found], picked: list[int], own: Counter[str]) -> None:
        begun = self.moment
        try:
            for index, found in way(self.records, picked):
                own["reads"] += 1
                is_quiet = begun % 2 == 0 and begun == self.moment
                if found != record(index) and self.case.promises(way, is_quiet):
                    self.wrong.append(f"{way.__name__}: record {index} was {found[:12]!r}..., {len(found)} bytes")
        except anyrecord.RecordError as error:
            own[type(error).__name__] += 1
            own["errors"] += 1
            if not self.case.may_fail():
                self.wrong.append(f"{way.__name__}: {error}")


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), data, at)


def replace(path: Path, other: Path) -> Iterable[None]:
    os.replace(other, path)
    yield
    path.write_bytes(b"not a record file")
    yield


def delete(path: Path, other: Path) -> Iterable[None]:
    path.unlink()
    yield
    os.replace(other, path)
    yield


def truncate(path: Path, other: Path) -> Iterable[None]:
    size = path.stat().st_size
    for left in (size - 1, size - 4097, size // 2, size // 2 - 13, 4096, 1, 0):
        os.truncate(path, max(left, 0))
        yield
    os.truncate(path, size)  # the records are zeros now
    yield


def clear(path: Path, other: Path) -> Iterable[None]:
    os.truncate(path, 1)  # whoever reads first now finds nothing, and nobody has seen before that the file was cut
    yield


def scribble(path: Path, other: Path) -> Iterable[None]:
    before, source = path.read_bytes(), random.Random(1)
    for _ in range(12):
        at, noise = scrawl(before, source)
        overwrite(path, at, noise)
        yield
    overwrite(path, 0, bytes(len(before)))
    yield
    overwrite(path, 0, before)
    yield


def scrawl(before: bytes, source: random.Random) -> tuple[int, bytes]:
    """Where to overwrite a file, and with what."""
    at, length = source.randrange(len(before)), source.choice((1, 1, 7, 300, 5000))
    return at, source.randbytes(length)[: len(before) - at]


class Storm:
    """A process that overwrites bytes and puts them back, as fast as it can.

    A thread would wait for the GIL between two writes. Only at this speed do bytes change between two looks of the same
    read at them.
    """

    def __init__(self, path: Path) -> None:
        own, self.control = os.pipe()
        self.counts, counts = os.pipe()
        if os.fork() == 0:
            os.close(self.control)
            os.write(counts, b"%d" % self.rage(path, own))
            os._exit(0)
        os.close(own)
        os.close(counts)

    @staticmethod
    def rage(path: Path, control: int) -> int:
        before, source, count = path.read_bytes(), random.Random(2), 0
        os.read(control, 1)
        file = os.open(path, os.O_WRONLY)
        while not select.select([control], [], [], 0)[0]:
            for _ in range(20):
                at, noise = scrawl(before, source)
                os.pwrite(file, noise, at)
                os.pwrite(file, before[at : at + len(noise)], at)
                count += 1
        return count

    def begin(self) -> None:
        os.write(self.control, b"!")

    def end(self) -> int:
        """How often it has overwritten something. Everything is as before now."""
        os.close(self.control)
        count = int(os.read(self.counts, 100))
        os.close(self.counts)
        os.wait()
        return count


STEPS = {"replace": replace, "delete": delete, "truncate": truncate, "clear": clear, "scribble": scribble}


def attack(case: Case, folder: Path) -> dict[str, int | list[str]]:
    """Runs in a child. What was read and what must not happen."""
    warnings.simplefilter("ignore")
    sink = (folder / "faults").open("w")
    path = write(folder / f"data{case.variant.suffix}", case.variant, range(RECORDS))
    other = write(folder / f"other{case.variant.suffix}", case.variant, range(OTHERS, OTHERS + RECORDS))
    size = path.stat().st_size
    if case.faulthandler == "before":
        faulthandler.enable(sink)
    # Small batches are decoded by the calling thread, larger ones by several.
    records = anyrecord.open(path, io=case.io, checksums=case.checksums, cache_bytes=0, threads=3)
    if case.faulthandler == "after":
        assert records[0] == record(0)
        faulthandler.enable(sink)
    storm = Storm(path) if case.attack == "scribble" else None
    readers = Readers(case, records)
    readers.wait(0)
    attacks = 0
    readers.moment += 1
    steps = iter(STEPS[case.attack](path, other))
    while True:
        with readers.paused() if case.pauses() else nullcontext():
            if next(steps, "over") == "over":
                break
        has_zeros = case.is_cut() and path.stat().st_size == size
        readers.moment += not has_zeros
        attacks += 1
        readers.wait(THREADS // 4)
        readers.moment += not has_zeros
    if storm:
        storm.begin()
        readers.wait(6 * THREADS)
        attacks += storm.end()
    readers.stop()
    if storm:
        wrong = [index for index, found in enumerate(records) if found != record(index)]
        readers.wrong += [f"record {index} is not right again" for index in wrong]
    return {**readers.reads, "attacks": attacks, "wrong": readers.wrong[:5]}


def change_size(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"!")


def change_time(path: Path) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def change_inode(path: Path) -> None:
    status = path.stat()
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(copy, path)


def change_device(path: Path) -> None:
    """The path is a link from now on, to a file in memory."""
    status = path.stat()
    with tempfile.NamedTemporaryFile(dir="/dev/shm", delete=False) as copy:
        copy.write(path.read_bytes())
    os.utime(copy.name, ns=(status.st_atime_ns, status.st_mtime_ns))
    link = path.with_suffix(".link")
    link.symlink_to(copy.name)
    os.replace(link, path)


CHANGES: tuple[Callable[[Path], None], ...] = (change_size, change_time, change_inode, change_device)


def reopen(variant: Variant, io: Io, change: Callable[[Path], None], folder: Path) -> dict[str, int | list[str]]:
    """Runs in a child. Two files share one descriptor, so that threads open them again and again."""
    warnings.simplefilter("ignore")
    paths = [write(folder / f"{part}{variant.suffix}", variant, range(part * 60, part * 60 + 60)) for part in (0, 1)]
    records = anyrecord.open(paths, io=io, cache_bytes=0, limits=Limits(open_files=1))
    readers = Readers(Case(variant, io, "scribble", True, "off"), records)
    readers.wait(0)
    change(paths[0])
    readers.wait(THREADS)
    readers.stop()
    wrong = readers.wrong
    is_read_again = io in ("plain", "direct") and variant.name not in ("tfrecord gzip", "tfrecord zlib")
    if is_read_again:
        for index in (0, 59):
            records[100]  # takes the descriptor
            try:
                records[index]
                wrong.append(f"record {index} was read from a file that was opened again after a change")
            except anyrecord.FormatError as error:
                if "changed since it was opened" not in str(error):
                    wrong.append(f"record {index}: {error}")
    elif records[0] != record(0):
        wrong.append("record 0 was not the old one")
    if paths[0].is_symlink():
        paths[0].resolve().unlink()
    return {**readers.reads, "attacks": 1, "wrong": wrong[:5]}


def cases(short: bool) -> Iterator[Case]:
    combinations = itertools.product(VARIANTS, IOS, ATTACKS, (True, False), FAULTHANDLER)
    for number, (variant, io, attacked, checksums, handler) in enumerate(combinations):
        # One of the 24 settings for every second file; 7 and 24 have no common factor, so many settings occur.
        if not short or (number % 24 == number // 24 * 7 % 24 and number // 24 % 2 == number // 96 % 2):
            yield Case(variant, io, attacked, checksums, handler)
    # Without checksums and without a codec, only the map itself can tell that its zeros are no records.
    for variant, attacked in itertools.product(USUAL, ("truncate", "clear")):
        yield Case(variant, "map", attacked, checksums=False, faulthandler="off")


def run(short: bool) -> list[Figure]:
    """Each attack on each format, codec and `io`; files that are opened again after a change."""
    attacks = Figure("attacks on a file that 16 threads read", at_least=100 if short else 7000)
    reads, errors = Figure("reads during the attacks"), Figure("of these raised an error with a name")
    changed = Figure("changes of size, time, inode and device of a file that is opened again", at_least=16)

    def count(name: str, figure: Figure, act: Callable[[Path], dict[str, int | list[str]]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = in_child(lambda: act(Path(folder)))
            except Died as died:
                figure.tried += 1
                figure.violations.append(f"{name}: the process {died}")
                return
        figure.tried += found["attacks"]
        reads.tried += found.get("reads", 0)
        errors.tried += found.get("errors", 0)
        figure.violations += [f"{name}: {wrong}" for wrong in found["wrong"]]

    for case in cases(short):
        count(str(case), attacks, partial(attack, case))
    combinations = itertools.product(VARIANTS, IOS, CHANGES)
    for number, (variant, io, change) in enumerate(combinations):
        if not short or number % 8 == number // 16 * 3 % 8:
            name = f"{change.__name__} of {variant}, io={io}"
            count(name, changed, partial(reopen, variant, io, change))
    return [attacks, reads, errors, changed]
