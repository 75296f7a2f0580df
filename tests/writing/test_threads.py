"""Threads that encode: started by themselves where that pays, never visible in the bytes, never holding much."""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from children import LIMIT_SECONDS, forked, python

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
    pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc"),
]

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

COMPRESSED: dict[str, tuple[str, dict[str, Any]]] = {
    "small zstd": ("a.array_record", {"codec": "zstd"}),
    "small brotli": ("a.array_record", {"codec": "brotli", "level": 1}),
    "groups": ("a.array_record", {"codec": "zstd", "group_size": 17}),
    "transposed": ("a.array_record", {"codec": "snappy", "group_size": 100, "transpose": True}),
    "snappy in parts": ("a.recordio", {"codec": "snappy"}),
    "snappy in chunks": ("a.recordio", {"codec": "snappy", "chunk_bytes": 500_000}),
    "gzip": ("a.recordio", {"codec": "gzip", "level": 1, "chunk_bytes": 500_000}),
    "one stream": ("a.tfrecord", {"codec": "gzip", "level": 1}),
}
COUNT = 30_000


def records() -> list[bytes]:
    return [b"record %d " % number * (number % 20) for number in range(COUNT)]


def encoding_threads() -> set[str]:
    """The threads of this process that encode now."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError):  # It ended meanwhile.
            if Path(f"/proc/self/task/{task}/comm").read_text().startswith("anyrecord-encod"):
                found.add(task)
    return found


def started(path: Path, count: int = COUNT, least: int = 0, **options: Any) -> int:
    """How many threads are started for so many records. A thread has its name a moment after it is started, so `least`
    are waited for."""
    # Those of other writers that are closed end by themselves, some time.
    before = encoding_threads()
    with anyrecord.create(path, overwrite=True, durable=False, **options) as out:
        out.write_many(records()[:count])
        deadline = time.monotonic() + LIMIT_SECONDS
        while len(found := encoding_threads() - before) < least and time.monotonic() < deadline:
            time.sleep(0.01)
        return len(found)


def started_in_child(path: str, results: Any) -> None:
    results.put(started(Path(path), codec="zstd"))


@pytest.mark.parametrize(("name", "options"), COMPRESSED.values(), ids=list(COMPRESSED))
def test_the_bytes_are_the_same_for_any_number_of_threads(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    written = {}
    for threads in (1, None, 2, 5):
        with anyrecord.create(tmp_path / f"{threads}{name}", threads=threads, **options) as out:
            for record in records():
                out.write(record)
        written[threads] = (tmp_path / f"{threads}{name}").read_bytes()
    assert {threads: data == written[1] for threads, data in written.items()} == dict.fromkeys(written, True)
    assert list(anyrecord.open(tmp_path / f"None{name}")) == records()


@pytest.mark.skipif(CORES < 2, reason="one core encodes by itself")
def test_there_is_a_thread_for_each_core_once_there_is_enough_to_compress(tmp_path: Path) -> None:
    path = tmp_path / "a.array_record"
    assert started(path, least=min(CORES, 32), codec="zstd") == min(CORES, 32)
    assert started(path, count=300, codec="zstd") == 0
    assert started(path, codec="none") == 0
    assert started(path, codec="zstd", threads=1) == 0
    assert started(path, count=300, least=3, codec="zstd", threads=3) == 3


def test_a_forked_child_starts_none_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.array_record"
    assert forked(lambda: started(path, codec="zstd")) == 0
    assert forked(lambda: started(path, least=2, codec="zstd", threads=2)) == 2
    assert list(anyrecord.open(path)) == records()


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_worker_process_starts_none_by_itself(tmp_path: Path, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    child = context.Process(target=started_in_child, args=(str(tmp_path / "a.array_record"), results))
    child.start()
    assert results.get(timeout=LIMIT_SECONDS) == 0
    child.join()


MEMORY = """
import os, re, sys, anyrecord

def peak():
    with open("/proc/self/status") as status:
        return int(re.search("VmHWM:\\\\s+([0-9]+)", status.read())[1])

pool = os.urandom(1 << 20)
before = peak()
with anyrecord.create(sys.argv[1], durable=False, **eval(sys.argv[2])) as out:
    for number in range(300):
        for at in range(0, 1 << 20, 1 << 12):
            out.write(pool[at : at + 4000])
print((peak() - before) // 1024)
"""


@pytest.mark.parametrize(
    ("name", "options", "most"),
    [
        ("a.array_record", {"codec": "zstd"}, 40),
        ("a.array_record", {"codec": "zstd", "level": 9, "group_size": 20, "shards": 3}, 60),
        ("a.recordio", {"codec": "snappy", "chunk_bytes": 4 << 20}, 60),
        ("a.tfrecord", {"codec": "gzip", "level": 9}, 60),
    ],
)
def test_three_hundred_megabytes_are_written_in_a_few(
    tmp_path: Path, name: str, options: dict[str, Any], most: int
) -> None:
    # Slow ones fall far behind what comes in.
    script = MEMORY.replace("range(300)", "range(60)") if options.get("level") == 9 else MEMORY
    assert int(python(script, str(tmp_path / name), repr(options))) < most
