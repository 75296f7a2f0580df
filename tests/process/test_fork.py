"""Records in forked children: whatever the parent's threads were doing at the fork, a child reads the right bytes."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyrecord
import pytest
from anyrecord import ClosedError, Records
from children import LIMIT_SECONDS, Forked, forked

from process.record_files import ScriptedFile, expected, write

RECORDS = 500
FORKS = 25
"""For each of the four formats, so a hundred together. How a fork is survived has nothing to do with the format."""

# Forking with threads is what is tested; newer Pythons warn of it.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@pytest.fixture
def records(tmp_path: Path, suffix: str) -> Iterator[Records]:
    paths = [write(tmp_path / f"{part}{suffix}", range(part * 100, part * 100 + 100)) for part in range(RECORDS // 100)]
    with anyrecord.open(paths) as opened:
        yield opened


def reads_right(records: Records, seed: int) -> bool:
    """Reads in each way there is; true if every byte is right."""
    some = random.Random(seed).choices(range(RECORDS), k=20)
    return (
        all(records[index] == expected(index) for index in some)
        and records[some] == [expected(index) for index in some]
        and list(records[some[0] :][:30]) == [expected(index) for index in range(RECORDS)[some[0] :][:30]]
    )


@contextmanager
def threads_reading(records: Records, count: int) -> Iterator[None]:
    """Other threads read, singly and in batches, as long as the block runs."""
    stop, wrong = threading.Event(), list[int]()
    started = threading.Barrier(count + 1)

    def read(seed: int) -> None:
        started.wait(LIMIT_SECONDS)
        while not stop.is_set():
            seed += 1
            if not reads_right(records, seed):
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(1000 * number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    started.wait(LIMIT_SECONDS)
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(LIMIT_SECONDS)
    assert wrong == []
    assert not any(thread.is_alive() for thread in threads)


def test_a_hundred_forks_while_other_threads_read_all_read_right(records: Records) -> None:
    with threads_reading(records, 4):
        results = [forked(lambda seed=seed: reads_right(records, seed)) for seed in range(FORKS)]  # type: ignore[misc]
    assert results == [True] * FORKS


def test_parent_and_children_read_at_the_same_time(records: Records) -> None:
    def read_much() -> int:
        return sum(reads_right(records, seed) for seed in range(30))

    children = [Forked(read_much) for _ in range(4)]
    assert read_much() == 30
    assert [child.result() for child in children] == [30] * 4


def test_a_grandchild_reads_right(records: Records) -> None:
    assert forked(lambda: forked(lambda: reads_right(records, 1)))


def test_an_iterator_goes_on_from_the_same_record_in_parent_and_child(records: Records) -> None:
    iterator = iter(records)
    begun = [next(iterator) for _ in range(123)]
    rest = [expected(index) for index in range(123, RECORDS)]
    child = Forked(lambda: list(iterator))
    assert list(iterator) == rest
    assert child.result() == rest
    assert begun == [expected(index) for index in range(123)]


def test_closing_in_a_child_leaves_the_parent_open(records: Records) -> None:
    forked(records.close)
    assert reads_right(records, 1)
    assert not records.closed


def test_a_child_opens_files_while_other_threads_of_the_parent_read(records: Records) -> None:
    def open_and_read(seed: int) -> bool:
        with anyrecord.open(records.paths) as own:  # five files: opened by threads of the child's own
            return reads_right(own, seed)

    with threads_reading(records, 2):
        results = [forked(lambda seed=seed: open_and_read(seed)) for seed in range(10)]  # type: ignore[misc]
    assert results == [True] * 10


def test_a_child_writes_while_other_threads_of_the_parent_read(records: Records, tmp_path: Path, suffix: str) -> None:
    with threads_reading(records, 2):
        for number in range(5):
            forked(lambda number=number: write(tmp_path / f"child-{number}{suffix}", [number]) and None)  # type: ignore[misc]
    for number in range(5):
        assert list(anyrecord.open(tmp_path / f"child-{number}{suffix}")) == [expected(number)]


def test_a_pool_of_forked_workers_reads_right(records: Records) -> None:
    context = multiprocessing.get_context("fork")
    with threads_reading(records, 2), context.Pool(4) as pool:
        found = pool.map_async(records.__getitem__, range(RECORDS), chunksize=25).get(LIMIT_SECONDS)
    assert found == [expected(index) for index in range(RECORDS)]


def test_a_file_object_in_a_child_is_refused_and_still_right_in_the_parent(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"data{suffix}", range(50))
    with path.open("rb") as file, anyrecord.open(file) as records:
        for read in (lambda: records[1], lambda: records[[1, 2]], lambda: list(records)):
            with pytest.raises(ClosedError, match="pass the path instead") as caught:
                forked(read)
            assert caught.value.path == str(path)
        assert list(records) == [expected(index) for index in range(50)]


def test_a_fork_in_the_middle_of_a_file_objects_read_does_not_hang_the_child(tmp_path: Path, suffix: str) -> None:
    file = ScriptedFile(write(tmp_path / f"data{suffix}", range(50)).read_bytes())
    records = anyrecord.open(file)  # type: ignore[arg-type]  # has what is needed of BinaryIO
    reading, go_on, found = threading.Event(), threading.Event(), list[bytes]()

    def pause() -> None:
        reading.set()
        go_on.wait(LIMIT_SECONDS)

    file.before_read = pause
    thread = threading.Thread(target=lambda: found.append(records[7]))
    thread.start()
    assert reading.wait(LIMIT_SECONDS)
    with pytest.raises(ClosedError):
        forked(lambda: records[7])
    go_on.set()
    thread.join(LIMIT_SECONDS)
    assert found == [expected(7)]


def test_records_in_memory_are_readable_in_a_child(tmp_path: Path, suffix: str) -> None:
    records = anyrecord.open(write(tmp_path / f"data{suffix}", range(50)).read_bytes())
    assert forked(lambda: list(records)) == [expected(index) for index in range(50)]


def test_a_child_that_ends_without_clean_up_leaves_the_descriptor_to_the_parent(records: Records) -> None:
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            os._exit(0 if records[0] == expected(0) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert reads_right(records, 5)
