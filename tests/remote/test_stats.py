"""`records.stats()` counts what the server sees."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from typing import Any

import anyrecord
import pytest

from .servers import Played, faults

RECORDS = [bytes([i]) * 20_000 for i in range(60)]


def file_of() -> bytes:
    out = io.BytesIO()
    with anyrecord.create(out, format="ffrecord") as writer:
        writer.write_many(RECORDS)
    return out.getvalue()


def test_requests_and_bytes_are_those_of_the_server() -> None:
    with Played({"a.ffr": file_of()}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage={**server.storage, "readahead_bytes": 0})
        for read in (lambda: None, lambda: records[50], lambda: records[[10, 59, 30]], lambda: records[5:7][0]):
            read()
            stats = records.stats()
            assert (stats.requests, stats.retries) == (server.requests, 0)
            assert stats.bytes == sum(entry.bytes for entry in server.log)
        assert stats.waited_seconds > 0
        assert records[3:].stats() == records.map(len).stats() == stats


def test_retries_are_counted() -> None:
    with Played({"a.ffr": file_of()}) as server:
        server.play(faults.internal_error(), number=[1, 2])
        records = anyrecord.open(server.url("a.ffr"), storage={**server.storage, "init_backoff": "1ms"})
        assert (records.stats().requests, records.stats().retries) == (server.requests, 2)


@pytest.mark.parametrize("io", ["auto", "plain", "map", "direct"])
@pytest.mark.parametrize("format", ["ffrecord", "array_record", "recordio", "tfrecord"])
def test_reads_of_local_files_are_counted(format: str, io: Any) -> None:
    with anyrecord.create("a", format=format) as out:
        out.write_many(RECORDS)
    records = anyrecord.open("a", io=io, cache_bytes=0)
    total = sum(map(len, RECORDS))
    for read in (lambda: [records[i] for i in range(60)], lambda: records[list(range(60))], lambda: list(records)):
        before = records.stats()
        assert read() == RECORDS
        stats = records.stats()
        assert before.requests < stats.requests <= before.requests + 120
        # Compressed chunks are smaller than their records. A chunk of many records may be read for each of them.
        assert before.bytes < stats.bytes
        if format in ("ffrecord", "tfrecord"):
            assert total <= stats.bytes - before.bytes <= 1.1 * total
    assert (stats.retries, stats.waited_seconds, stats.readahead_hits, stats.readahead_bytes) == (0, 0.0, 0, 0)


def test_reads_of_bytes_and_of_file_objects_are_counted() -> None:
    for source in (file_of(), io.BytesIO(file_of()), io.BufferedReader(io.BytesIO(file_of()))):  # type: ignore[arg-type]
        records = anyrecord.open(source)  # type: ignore[arg-type]
        before = records.stats()
        assert records[5] == RECORDS[5]
        assert (records.stats().requests - before.requests, records.stats().bytes - before.bytes) == (1, 20_000)


def test_no_read_of_many_threads_is_lost() -> None:
    with anyrecord.create("a.ffr") as out:
        out.write_many(RECORDS)
    records = anyrecord.open("a.ffr")
    before = records.stats()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(records.__getitem__, list(range(60)) * 200))
    assert records.stats().requests - before.requests == 12_000
    assert records.stats().bytes - before.bytes == 12_000 * 20_000


def test_stats_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        anyrecord.open(file_of()).stats().requests = 1  # type: ignore[misc]
