"""Forked and spawned processes read on, in the middle of remote reads, and so do their parents."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading

import anyrecord
import pytest
from children import Forked

from .files import bytes_of
from .servers import Played

RECORDS = [b"%05d" % i * 1000 for i in range(400)]


def file_of() -> bytes:
    return bytes_of("array_record", RECORDS, codec="none")


@pytest.fixture(scope="module")
def server() -> object:
    with Played({"a.array_record": file_of()}) as server:
        yield server


def opened(server: Played) -> anyrecord.Records:
    return anyrecord.open(server.url("a.array_record"), storage={**server.storage, "readahead_bytes": 1 << 20})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_in_the_middle_of_reads_leaves_parent_and_child_right(server: Played) -> None:
    records = opened(server)
    stop = threading.Event()
    wrong: list[int] = []

    def read() -> None:
        while not stop.is_set():
            for number in range(0, len(RECORDS), 7):
                if records[number] != RECORDS[number]:
                    wrong.append(number)

    iterator = iter(records)
    begun = [next(iterator) for _ in range(20)]
    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        children = [Forked(lambda: (list(iterator), records[[399, 0]], list(records[::50]))) for _ in range(3)]
        rest = list(iterator)
        found = [child.result() for child in children]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert begun + rest == RECORDS
    assert found == [(RECORDS[20:], [RECORDS[399], RECORDS[0]], RECORDS[::50])] * 3
    assert not wrong


def shard(records: anyrecord.Records, rank: int) -> list[bytes]:
    return list(records.shard(rank, of=2))


def test_spawned_processes_read_the_pickled_records(server: Played) -> None:
    records = opened(server).shuffle(seed=1)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        parts = pool.starmap(shard, [(records, rank) for rank in range(2)])
    assert parts == [list(records.shard(rank, of=2)) for rank in range(2)]


def test_a_pickle_holds_the_url_and_the_options_and_opens_nothing(server: Played) -> None:
    records = opened(server)
    saved = pickle.dumps(records)
    server.clear()
    copy = pickle.loads(saved)
    assert server.requests == 0
    assert (len(copy), copy.paths) == (len(RECORDS), records.paths)
    assert copy[17] == RECORDS[17]
    assert server.requests > 0
