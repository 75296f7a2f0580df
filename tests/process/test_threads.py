"""One `Records` and many threads: exact results, nobody waits for another one's read, each record once."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyrecord
import pytest
from anyrecord import Limits, Records
from children import LIMIT_SECONDS

from process.record_files import ScriptedFile, expected, write

RECORDS = 1000
THREADS = 16


@pytest.fixture
def paths(tmp_path: Path, suffix: str) -> list[Path]:
    return [write(tmp_path / f"{part}{suffix}", range(part * 100, part * 100 + 100)) for part in range(RECORDS // 100)]


def in_threads(act: Callable[[int], int], count: int = THREADS) -> list[int]:
    """Calls `act` with the numbers of the threads, all at the same time; what they return."""
    together = threading.Barrier(count)

    def start(number: int) -> int:
        together.wait(LIMIT_SECONDS)
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count), timeout=LIMIT_SECONDS))


@pytest.mark.parametrize("open_files", [256, 3])
def test_sixteen_threads_on_one_records_read_exactly(paths: list[Path], open_files: int) -> None:
    with anyrecord.open(paths, limits=Limits(open_files=open_files)) as records:

        def read(number: int) -> int:
            source, right = random.Random(number), 0
            for _ in range(1000):
                index = source.randrange(RECORDS)
                right += records[index] == expected(index)
            for _ in range(50):
                batch = source.choices(range(RECORDS), k=40)
                right += records[batch] == [expected(index) for index in batch]
            return right

        assert in_threads(read) == [1050] * THREADS


def test_an_iterator_shared_by_threads_delivers_each_record_once(paths: list[Path]) -> None:
    with anyrecord.open(paths) as records:
        iterator, taken = iter(records), [list[bytes]() for _ in range(THREADS)]

        def take(number: int) -> int:
            taken[number].extend(iterator)
            return len(taken[number])

        assert sum(in_threads(take)) == RECORDS
    assert Counter(record for own in taken for record in own) == Counter(map(expected, range(RECORDS)))
    for own in taken:
        numbers = [int(record.partition(b":")[0]) for record in own]
        assert numbers == sorted(numbers), "each thread sees the records in their order"


def test_threads_that_close_and_read_at_once_get_the_record_or_a_closed_error(paths: list[Path]) -> None:
    for _ in range(20):
        records = anyrecord.open(paths)

        def read_or_close(number: int, records: Records = records) -> int:
            if number == 0:
                records.close()
                return 0
            for index in range(number, RECORDS, 50):
                try:
                    assert records[index] == expected(index)
                except anyrecord.ClosedError:
                    return 1
            return 0

        in_threads(read_or_close, 8)
        with pytest.raises(anyrecord.ClosedError):
            records[0]


def result_and_what_ran_meanwhile(path: Path, act: Callable[[], object]) -> list[object]:
    """What `act`, in another thread, returns; before it, "this thread ran" if that was so while `act` opened the file.

    A lease on the file makes the kernel hold whoever opens it until the lease is given up, which this thread does
    when it sees that somebody waits. If whoever opens the file holds the GIL meanwhile, this thread sees nothing
    before the kernel loses patience, after 45 seconds, and then nobody waits any more.
    """
    events: list[object] = []
    thread = threading.Thread(target=lambda: events.append(act()))
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # with which the kernel asks for the lease
    descriptor = os.open(path, os.O_RDWR)
    inode = os.fstat(descriptor).st_ino
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        thread.start()
        while thread.is_alive() and not events:
            locks = Path("/proc/locks").read_text().splitlines()
            if any("BREAKING" in lock and f":{inode} " in lock for lock in locks):
                events.append("this thread ran")
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    finally:
        os.close(descriptor)
        thread.join(LIMIT_SECONDS)
        signal.signal(signal.SIGIO, before)
    return events


@pytest.mark.parametrize(
    "read",
    [lambda records: records[0], lambda records: records[[0, 1]], lambda records: list(records)],
    ids=["one", "batch", "iteration"],
)
def test_other_threads_run_while_a_read_waits_for_the_system(
    paths: list[Path], read: Callable[[Records], object]
) -> None:
    records = anyrecord.open(paths[:2], io="plain", limits=Limits(open_files=1))
    assert records[150] == expected(150)  # the other file has the one descriptor now
    events = result_and_what_ran_meanwhile(paths[0], lambda: read(records))
    assert events == ["this thread ran", read(records)]


def test_other_threads_run_while_open_waits_for_the_system(paths: list[Path]) -> None:
    events = result_and_what_ran_meanwhile(paths[0], lambda: anyrecord.open(paths[0])[7])
    assert events == ["this thread ran", expected(7)]


def test_other_threads_read_the_same_records_while_a_file_object_is_waited_for(paths: list[Path]) -> None:
    file = ScriptedFile(paths[0].read_bytes())
    slow = anyrecord.open(file)  # type: ignore[arg-type]  # has what is needed of BinaryIO
    records = anyrecord.open(paths[1]) + slow
    reading, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        reading.set()
        assert go_on.wait(LIMIT_SECONDS)

    file.before_read = pause
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(records.__getitem__, 100)
        assert reading.wait(LIMIT_SECONDS)
        assert list(records[:100]) == [expected(index) for index in range(100, 200)]
        assert not waiting.done()
        go_on.set()
        assert waiting.result(LIMIT_SECONDS) == expected(0)


def test_threads_that_share_a_file_object_do_not_move_each_others_position(paths: list[Path]) -> None:
    with paths[0].open("rb") as file, anyrecord.open(file) as records:

        def read(number: int) -> int:
            picked = random.Random(number).choices(range(100), k=300)
            return sum(records[index] == expected(index) for index in picked)

        assert in_threads(read) == [300] * THREADS


def test_a_file_object_may_read_other_records_in_its_read(paths: list[Path]) -> None:
    """A stack of three: a file object that reads from a file object that reads from a path."""
    of_path = anyrecord.open(paths[0])
    inner = ScriptedFile(paths[1].read_bytes())
    of_inner = anyrecord.open(inner, cache_bytes=0)  # type: ignore[arg-type]
    outer = ScriptedFile(paths[2].read_bytes())
    of_outer = anyrecord.open(outer, cache_bytes=0)  # type: ignore[arg-type]
    seen: list[bytes] = []
    inner.before_read = lambda: seen.extend(of_path[[3, 1]])
    outer.before_read = lambda: seen.append(of_inner[5])
    assert of_outer[9] == expected(209)
    assert seen == [expected(3), expected(1), expected(105)]
    assert list(of_outer) == [expected(index) for index in range(200, 300)]


def test_what_a_file_object_raises_comes_out_as_it_went_in(paths: list[Path]) -> None:
    file = ScriptedFile(paths[0].read_bytes())
    records = anyrecord.open(file)  # type: ignore[arg-type]
    raised = [LookupError("mine"), KeyboardInterrupt(), OSError(5, "also mine")]
    for error in raised:

        def fail(error: BaseException = error) -> None:
            raise error

        file.before_read = fail
        for read in (lambda: records[0], lambda: records[[0, 1]], lambda: records.read_into(bytearray(9), [0])):
            with pytest.raises(type(error)) as caught:
                read()
            assert caught.value is error
    file.before_read = None
    assert records[0] == expected(0)
