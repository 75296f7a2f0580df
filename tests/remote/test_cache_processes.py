"""Processes that share a cache: forked, spawned, killed. And disks that are full or cannot be written."""

from __future__ import annotations

import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from children import LIMIT_SECONDS, Forked

from .files import bytes_of
from .servers import Played

ON_DISK = (1 << 20) + 4096
RECORDS = [random.Random(number).randbytes(20_000) for number in range(300)]
"""6 MB, in 6 blocks."""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@pytest.fixture(scope="module")
def server() -> object:
    with Played({"a.ffr": bytes_of("ffrecord", RECORDS)}) as server:
        yield server


def opened(server: Played, folder: Path, **keywords: Any) -> anyrecord.Records:
    return anyrecord.open(server.url("a.ffr"), storage=server.storage, cache=folder, **keywords)


def sizes(folder: Path) -> int:
    found = 0
    for entry in os.scandir(folder):
        try:
            found += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:  # deleted at this moment
            continue
    return found


@needs_fork
def test_children_use_what_their_parent_mapped_and_go_on_by_themselves(server: Played, tmp_path: Path) -> None:
    records = opened(server, tmp_path)
    half = list(range(0, 150))
    assert records[half] == RECORDS[:150]
    iterator = iter(records)
    begun = [next(iterator) for _ in range(5)]
    children = [Forked(lambda: (records[half], list(records[::7]), list(iterator))) for _ in range(3)]
    assert [child.result() for child in children] == [(RECORDS[:150], RECORDS[::7], RECORDS[5:])] * 3
    assert begun + list(iterator) == RECORDS
    before = server.requests
    assert Forked(lambda: list(records)).result() == RECORDS
    assert server.requests == before


@needs_fork
def test_a_fork_in_the_middle_of_reads_and_evictions_leaves_all_right(server: Played, tmp_path: Path) -> None:
    records = opened(server, tmp_path, cache_folder_bytes=3 * ON_DISK)
    stop, wrong = threading.Event(), []

    def read(seed: int) -> None:
        chance = random.Random(seed)
        while not stop.is_set():
            number = chance.randrange(len(RECORDS))
            if records[number] != RECORDS[number]:
                wrong.append(number)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        found = [
            Forked(lambda: list(records) == RECORDS and records[[299, 0]] == [RECORDS[299], RECORDS[0]])
            for _ in range(4)
        ]
        results = [child.result() for child in found]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert results == [True] * 4
    assert not wrong


@needs_fork
def test_the_space_of_deleted_blocks_is_released_by_who_stores_the_next(server: Played, tmp_path: Path) -> None:
    """A mapped file takes room after it was deleted."""
    records = opened(server, tmp_path, cache_folder_bytes=2 * ON_DISK)
    for _ in range(3):
        assert list(records) == RECORDS
    deleted = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
    assert len(deleted) <= 3, deleted


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc")
def test_an_idle_reader_releases_what_others_deleted(server: Played, tmp_path: Path) -> None:
    idle = opened(server, tmp_path, cache_folder_bytes=7 * ON_DISK)
    assert list(idle) == RECORDS
    # Another limit makes another cache, as in another process.
    server.put("b.ffr", bytes_of("ffrecord", RECORDS[::-1]))
    busy = anyrecord.open(server.url("b.ffr"), storage=server.storage, cache=tmp_path, cache_folder_bytes=6 * ON_DISK)
    assert list(busy) == RECORDS[::-1]

    def held() -> int:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return sum(str(tmp_path) in line and line.endswith("(deleted)") for line in lines)

    begun = time.monotonic()
    while held() and time.monotonic() - begun < LIMIT_SECONDS:
        time.sleep(0.01)
    assert not held()
    assert list(idle) == RECORDS


PROGRAM = """
import sys, anyrecord, json
url, storage, folder, limit = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4])
records = anyrecord.open(url, storage=storage, cache=folder, cache_folder_bytes=limit)
print("open", flush=True)
while True:
    for batch in records.batches(20):
        pass
    print("epoch", flush=True)
"""


def started(server: Played, folder: Path, limit: int) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(Path(anyrecord.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, server.url("a.ffr"), json.dumps(server.storage), str(folder), str(limit)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def test_killed_processes_leave_nothing_that_stops_the_next(server: Played, tmp_path: Path) -> None:
    limit = 3 * ON_DISK
    for turn in range(6):
        child = started(server, tmp_path, limit)
        assert child.stdout
        assert child.stdout.readline() == "open\n"
        for _ in range(turn % 3):
            assert child.stdout.readline() == "epoch\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        records = opened(server, tmp_path, cache_folder_bytes=limit)
        assert list(records) == RECORDS
        assert sizes(tmp_path) <= limit + ON_DISK + 4096
        assert records.stats().cache_damaged == 0


def test_a_stopped_process_that_holds_the_lock_stops_nobody(server: Played, tmp_path: Path) -> None:
    assert opened(server, tmp_path)[0] == RECORDS[0]
    with open(tmp_path / ".usage", "r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        records = opened(server, tmp_path)
        assert records[[0, 100, 200]] == [RECORDS[0], RECORDS[100], RECORDS[200]]
    assert list(records) == RECORDS


@needs_fork
def test_a_full_disk_is_told_once_and_reading_goes_on(server: Played, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: both fail in the middle of a block."""

    def limited() -> tuple[bool, list[str], list[str]]:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            records = opened(server, tmp_path)
            is_right = list(records) == RECORDS and records[[5, 290]] == [RECORDS[5], RECORDS[290]]
        return is_right, [f"{w.category.__name__}: {w.message}" for w in caught], sorted(os.listdir(tmp_path))

    is_right, told, left = Forked(limited).result()
    assert is_right
    assert len(told) == 1
    assert told[0].startswith("RuntimeWarning: the cache")
    assert "goes on without storing" in told[0]
    assert left == [".usage"], "nothing half written is left"
    records = opened(server, tmp_path)
    assert list(records) == RECORDS
    assert list(records) == RECORDS
    assert records.stats().cache_hits > 0


def test_a_small_disk_that_runs_full_is_used_as_far_as_it_goes(server: Played, tmp_path: Path) -> None:
    """The limit is larger than the disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted")
    try:
        records = opened(server, disk / "cache", cache_folder_bytes=1 << 30)
        with pytest.warns(RuntimeWarning, match="No space left on device"):
            assert list(records) == RECORDS
        assert list(records) == RECORDS
        assert 1 <= len([name for name in os.listdir(disk / "cache") if not name.startswith(".")]) <= 3
        assert records.stats().cache_hits > 0
        records.close()
        # By default, the limit is what is free.
        with warnings.catch_warnings(), opened(server, disk / "cache") as again:
            warnings.simplefilter("error")
            assert list(again) == RECORDS
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@needs_fork
def test_a_folder_that_may_only_be_read_serves_what_it_has(server: Played, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    tmp_path.chmod(0o755)
    assert list(opened(server, folder)[:100]) == RECORDS[:100]

    def unprivileged() -> tuple[bool, int, list[str]]:
        if os.getuid() == 0:
            os.setuid(65534)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            records = opened(server, folder)
            is_right = list(records) == RECORDS
        return is_right, records.stats().cache_hits, [str(warning.message) for warning in caught]

    for parent in [tmp_path, *tmp_path.parents][:3]:
        if parent.stat().st_uid == os.getuid():
            parent.chmod(parent.stat().st_mode | 0o055)
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    try:
        is_right, hits, told = Forked(unprivileged).result()
    finally:
        folder.chmod(0o700)
    assert is_right
    assert hits > 0
    assert len(told) == 1
    assert "cannot be written" in told[0]
