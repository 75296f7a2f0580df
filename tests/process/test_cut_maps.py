"""Files that are cut under mapped readers: errors in every thread of every process, and nobody dies."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyrecord
import numpy as np
import pytest
from anyrecord import Records, TruncatedError
from children import LIMIT_SECONDS, Forked

from process.record_files import expected, write

RECORDS = 300
THREADS = 8
CHILDREN = 4


def one_by_one(records: Records, start: int) -> None:
    for index in range(start, RECORDS, 5):
        assert records[index] == expected(index)


def in_a_batch(records: Records, start: int) -> None:
    picked = list(range(start, RECORDS, 5))
    assert records[picked] == [expected(index) for index in picked]


def in_order(records: Records, start: int) -> None:
    for index, record in enumerate(records[start:], start):
        assert record == expected(index)


def into_a_buffer(records: Records, start: int) -> None:
    picked = list(range(start, RECORDS, 7))
    out = bytearray(sum(len(expected(index)) for index in picked))
    offsets = records.read_into(out, picked)
    for place, index in enumerate(picked):
        assert out[offsets[place] : offsets[place + 1]] == expected(index)


def packed(records: Records, start: int) -> None:
    picked = list(range(start, RECORDS, 6))
    assert records.read_packed(picked).tolist() == [expected(index) for index in picked]


WAYS: list[Callable[[Records, int], None]] = [one_by_one, in_a_batch, in_order, into_a_buffer, packed]


def read_until_it_is_cut(records: Records, number: int, started: threading.Barrier) -> str:
    """Right records, then the error. Whatever else there is, a wrong record above all, is raised."""
    started.wait(LIMIT_SECONDS)
    while True:
        try:
            WAYS[number % len(WAYS)](records, number)
        except TruncatedError as error:
            return str(error.path)


def in_threads(records: Records, when_started: Callable[[], object]) -> set[str]:
    started = threading.Barrier(THREADS + 1)
    with ThreadPoolExecutor(THREADS) as pool:
        readers = [pool.submit(read_until_it_is_cut, records, number, started) for number in range(THREADS)]
        started.wait(LIMIT_SECONDS)
        when_started()
        return {reader.result(LIMIT_SECONDS) for reader in readers}


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("left", [0, 1000, 50_000], ids="cut to {}".format)
def test_a_file_cut_under_eight_threads_in_each_of_five_processes(
    tmp_path: Path, suffix: str, checksums: bool, left: int
) -> None:
    path = write(tmp_path / f"data{suffix}", range(RECORDS))
    assert path.stat().st_size > 2 * left
    records = anyrecord.open(path, io="map", checksums=checksums, cache_bytes=0)
    assert list(records) == [expected(index) for index in range(RECORDS)]
    ready, started = os.pipe()
    children = [Forked(lambda: in_threads(records, lambda: os.write(started, b"!"))) for _ in range(CHILDREN)]
    for _ in children:
        assert os.read(ready, 1) == b"!"
    assert in_threads(records, lambda: os.truncate(path, left)) == {str(path)}
    assert [child.result() for child in children] == [{str(path)}] * CHILDREN
    os.close(ready)
    os.close(started)


@pytest.mark.parametrize("shorter", [1, 100, 3000, 5000])
def test_without_checksums_a_cut_near_the_end_is_seen_by_who_reads_there(
    tmp_path: Path, suffix: str, shorter: int
) -> None:
    """A page that is cut inside reads as zeros from there on, and no signal comes."""
    outcomes = {}
    for io in ("plain", "map"):
        path = write(tmp_path / f"{io}{suffix}", range(RECORDS))
        records = anyrecord.open(path, io=io, checksums=False, cache_bytes=0)
        in_place = [bytes(records.buffer(index)) for index in range(RECORDS)]
        assert in_place == [expected(index) for index in range(RECORDS)]
        os.truncate(path, path.stat().st_size - shorter)
        outcomes[io] = [is_read(records, index) for index in range(RECORDS)]
    assert outcomes["map"] == outcomes["plain"]
    # Tables and sums at the end of a file may be all that is missing.
    missing_is_checked = shorter > 100 and suffix != ".array_record"
    assert not missing_is_checked or not all(outcomes["map"])


def is_read(records: Records, index: int) -> bool:
    """Whether it can be read; wrong bytes are an error."""
    try:
        assert records[index] == expected(index)
    except TruncatedError:
        return False
    return True


def test_a_view_of_a_cut_file_reads_as_zeros_and_kills_nobody(tmp_path: Path) -> None:
    path = tmp_path / "data.ffr"
    with anyrecord.create(path) as out:
        out.write_many([b"\xff" * 100_000] * 2)
    view = anyrecord.open(path).buffer(1)
    os.truncate(path, 120_000)
    found = np.frombuffer(view, np.uint8)
    assert found[-1] == 0
    assert found[0] in (0, 255)
