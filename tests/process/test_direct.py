"""Reading past the page cache: the same bytes, from every thread and process, also where it is not to be had."""

from __future__ import annotations

import ctypes
import os
import pickle
import random
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyrecord
import pytest
from anyrecord import FormatError, Limits, Records, TruncatedError
from children import LIMIT_SECONDS, Forked, forked, python
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from process.record_files import expected, open_descriptors, write

RECORDS = 500

# Forking with threads is what is tested; newer Pythons warn of it.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def has_direct_reads(folder: Path) -> bool:
    """Whether the file system of a folder has reads past the page cache."""
    path = write(folder / "probe.ffr", [1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        anyrecord.open(path, io="direct").close()
    return not caught


def has_queues() -> bool:
    """Whether the system lets us have queues of reads, asked without our own code."""
    call, setup = ctypes.CDLL(None, use_errno=True).syscall, 425
    descriptor: int = call(setup, 1, ctypes.create_string_buffer(120))
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


def queues() -> int:
    """How many queues this process has descriptors of."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += "io_uring" in os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return found


needs_queues = pytest.mark.skipif(not has_queues(), reason="the system forbids io_uring")


@pytest.fixture
def paths(tmp_path: Path, suffix: str) -> list[Path]:
    if not has_direct_reads(tmp_path):
        pytest.skip("the file system of the temporary folder has no direct reads")
    return [write(tmp_path / f"{part}{suffix}", range(part * 100, part * 100 + 100)) for part in range(RECORDS // 100)]


@pytest.fixture
def records(paths: list[Path]) -> Iterator[Records]:
    with anyrecord.open(paths, io="direct") as opened:
        yield opened


def reads_right(records: Records, seed: int) -> bool:
    """Reads in each way there is; true if every byte is right."""
    some = random.Random(seed).choices(range(RECORDS), k=40)
    return (
        all(records[index] == expected(index) for index in some[:5])
        and records[some] == [expected(index) for index in some]
        and list(records[some[0] :][:30]) == [expected(index) for index in range(RECORDS)[some[0] :][:30]]
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_direct_and_plain_reads_are_the_same_for_any_sizes_and_indices(
    tmp_path: Path, suffix: str, data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 100, 511, 512, 513, 4095, 4096, 5000, 70_000]), max_size=30))
    contents = [random.Random(number).randbytes(size) for number, size in enumerate(sizes)]
    path = tmp_path / f"any{suffix}"
    with anyrecord.create(path, overwrite=True, durable=False) as out:
        out.write_many(contents)
    indices = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=40)) if sizes else []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* read through the page cache")
        direct = anyrecord.open(path, io="direct")
    assert direct[indices] == anyrecord.open(path, io="plain")[indices] == [contents[index] for index in indices]
    assert list(direct) == contents
    assert [direct[index] for index in indices] == [contents[index] for index in indices]


@pytest.mark.parametrize("size", [0, 100, 10_000, 8192])
@pytest.mark.parametrize("indices", [[50], [50, 3, 77, 99]])
def test_a_file_cut_under_the_reader_is_a_truncation_error(paths: list[Path], size: int, indices: list[int]) -> None:
    records = anyrecord.open(paths[0], io="direct")
    os.truncate(paths[0], size)
    for read in (lambda: records[indices], lambda: records[indices[0]], lambda: list(records)):
        with pytest.raises(TruncatedError) as caught:
            read()
        assert caught.value.path == str(paths[0])
        assert caught.value.offset is not None


def test_a_file_cut_under_threads_gives_right_records_or_truncation_errors(paths: list[Path]) -> None:
    # With a cache, readers could go on for ever with what they have.
    records, started = anyrecord.open(paths[0], io="direct", cache_bytes=0), threading.Barrier(9)

    def read(number: int) -> bool:
        started.wait(LIMIT_SECONDS)
        # Ends with the error that is waited for, or with an assertion.
        try:
            while True:
                some = range(number, 100, 3)
                assert records[some] == [expected(index) for index in some]
        except TruncatedError:
            return True

    with ThreadPoolExecutor(8) as pool:
        readers = [pool.submit(read, number) for number in range(8)]
        started.wait(LIMIT_SECONDS)
        os.truncate(paths[0], 0)
        assert all(reader.result(LIMIT_SECONDS) for reader in readers)


def test_sixteen_threads_read_exactly(records: Records) -> None:
    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(lambda seed: reads_right(records, seed), range(200), timeout=LIMIT_SECONDS))


def test_forks_while_other_threads_read_all_read_right(records: Records) -> None:
    stop, wrong = threading.Event(), list[int]()

    def read(seed: int) -> None:
        while not stop.is_set():
            seed += 1
            if not reads_right(records, seed):
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        results = [forked(lambda seed=seed: reads_right(records, seed)) for seed in range(25)]  # type: ignore[misc]
    finally:
        stop.set()
        for thread in threads:
            thread.join(LIMIT_SECONDS)
    assert results == [True] * 25
    assert wrong == []


def test_parent_child_and_grandchild_read_at_the_same_time(records: Records) -> None:
    assert reads_right(records, 0)

    def read_much() -> int:
        return sum(reads_right(records, seed) for seed in range(20))

    children = [Forked(lambda: forked(read_much) + read_much()) for _ in range(2)]
    assert read_much() == 20
    assert [child.result() for child in children] == [40] * 2


@needs_queues
@pytest.mark.parametrize("suffix", [".ffr"])
def test_a_child_makes_a_queue_of_its_own_and_leaves_its_parents_alone(records: Records) -> None:
    assert reads_right(records, 1)
    before = queues()
    assert before >= 1

    def read() -> tuple[int, int]:
        return queues(), queues() if reads_right(records, 2) else 0

    assert forked(read) == (before, before + 1)
    assert queues() == before
    assert reads_right(records, 3)


@needs_queues
@pytest.mark.parametrize("suffix", [".ffr"])
def test_the_queue_of_a_thread_goes_with_it(records: Records) -> None:
    assert reads_right(records, 1)
    before, counts = queues(), list[int]()
    for seed in range(20):
        thread = threading.Thread(target=lambda seed=seed: counts.append(reads_right(records, seed) * queues()))
        thread.start()
        thread.join(LIMIT_SECONDS)
    assert min(counts) > before
    # Python's join is over a moment before the thread is.
    start = time.monotonic()
    while queues() > before and time.monotonic() < start + LIMIT_SECONDS:
        os.sched_yield()
    assert queues() == before


WITHOUT_QUEUES = """
import ctypes, errno, struct, sys
import anyrecord

# A filter of system calls: io_uring_setup is refused, everything else allowed.
load, if_equal, answer = 0x20, 0x15, 0x06
program = b"".join(struct.pack("HBBI", *line) for line in [
    (load, 0, 0, 0), (if_equal, 0, 1, 425), (answer, 0, 0, 0x00050000 | errno.EPERM), (answer, 0, 0, 0x7FFF0000)])
code = ctypes.create_string_buffer(program)
filter = struct.pack("HxxxxxxQ", 4, ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, filter, 0, 0):
    print("no filter")
    sys.exit()
assert libc.syscall(425, 1, ctypes.create_string_buffer(120)) == -1 and ctypes.get_errno() == errno.EPERM

path, *indices = sys.argv[1:]
indices = [int(index) for index in indices]
expected = anyrecord.open(path, io="map")[indices]
for io in ("direct", "plain"):
    records = anyrecord.open(path, io=io)
    for _ in range(3):
        assert records[indices] == expected
    assert [records[index] for index in indices] == expected
print("right")
"""


def test_where_the_system_forbids_queues_the_same_bytes_are_read(paths: list[Path]) -> None:
    answer = python(WITHOUT_QUEUES, str(paths[0]), *map(str, random.Random(5).choices(range(100), k=60))).strip()
    if answer == "no filter":
        pytest.skip("the system lets nobody filter system calls")
    assert answer == "right"


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """A folder on a file system that is nothing but page cache."""
    if not os.path.isdir("/dev/shm"):
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def test_a_file_system_without_direct_reads_is_read_plainly_with_one_warning(memory_folder: Path, suffix: str) -> None:
    paths = [write(memory_folder / f"{part}{suffix}", range(part * 10, part * 10 + 10)) for part in range(3)]
    with pytest.warns(UserWarning, match='is read through the page cache, .* io="direct"') as caught:
        records = anyrecord.open(paths[0], io="direct")
    assert len(caught) == 1
    assert str(paths[0]) in str(caught[0].message)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=r"3 files \(.* is the first\) are read through the page cache") as caught:
        records = anyrecord.open(paths, io="direct")
    assert len(caught) == 1
    assert list(records) == [expected(index) for index in range(30)]
    assert records[[29, 0, 15]] == [expected(index) for index in (29, 0, 15)]


def test_records_read_directly_pickle_as_such(records: Records) -> None:
    again = pickle.loads(pickle.dumps(records))
    assert again._source.options.io == "direct"
    assert reads_right(again, 7)


@pytest.mark.parametrize("open_files", [1, 3])
def test_descriptors_are_bounded_and_opened_again(paths: list[Path], open_files: int) -> None:
    with anyrecord.open(paths, io="direct", limits=Limits(open_files=open_files)) as records:
        assert reads_right(records, 1)  # from now on there is a queue, if there ever is
        files = open_descriptors() - open_files
        assert all(reads_right(records, seed) for seed in range(20))
        assert open_descriptors() <= files + open_files


def touch(path: Path) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"!")


@pytest.mark.parametrize("change", [touch, lengthen])
def test_a_file_that_changed_while_its_descriptor_was_closed_is_refused(
    paths: list[Path], change: Callable[[Path], None]
) -> None:
    records = anyrecord.open(paths[:2], io="direct", limits=Limits(open_files=1))
    assert records[100] == expected(100)  # opens the other file, and closes the first one for it
    change(paths[0])
    for read in (lambda: records[50], lambda: records[[50, 60]]):
        with pytest.raises(FormatError, match="changed since it was opened"):
            read()
    assert records[[101, 199]] == [expected(101), expected(199)]
