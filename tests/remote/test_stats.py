"""`records.stats()` counts what the server sees."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyrecord
import fsspec
import pytest
from obstore.store import S3Store

from .files import bytes_of
from .places import credentials
from .servers import BUCKET, Played, faults

RECORDS = [bytes([i]) * 20_000 for i in range(60)]


def file_of() -> bytes:
    return bytes_of("ffrecord", RECORDS)


def store_of(server: Played) -> Any:
    """A store that is asked for bytes."""
    client: Any = {"allow_http": True}
    return S3Store(BUCKET, endpoint=server.endpoint, region="r", client_options=client, credential_provider=credentials)


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


def test_a_request_that_was_not_sent_is_not_counted() -> None:
    """Azure has no ranges from the end, so the size is asked for first."""
    out = io.BytesIO()
    with anyrecord.create(out, format="array_record") as writer:
        writer.write_many(RECORDS)
    with Played({"a.array_record": out.getvalue()}, protocol="azure") as server:
        records = anyrecord.open(server.url("a.array_record"), storage=server.storage)
        assert records.stats().requests == server.requests == 2


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
    reads: list[Callable[[], list[bytes]]]
    reads = [lambda: [records[i] for i in range(60)], lambda: records[list(range(60))], lambda: list(records)]
    for read in reads:
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
    sources: list[Any] = [file_of(), io.BytesIO(file_of()), io.BufferedReader(io.BytesIO(file_of()))]
    for source in sources:
        records = anyrecord.open(source)
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


def opened(source: str, where: str, server: Played) -> anyrecord.Records:
    if where == "local":
        Path(source).write_bytes(file_of())
        return anyrecord.open(source, cache_bytes=0)
    if where == "url":
        return anyrecord.open(server.url(source), storage={**server.storage, "readahead_bytes": 0})
    if where == "store":
        return anyrecord.open(source, storage=store_of(server))
    fs = fsspec.filesystem("memory")
    fs.pipe(f"/stats-tests/{source}", file_of())
    return anyrecord.open(f"/stats-tests/{source}", storage=fs)


def costs(records: anyrecord.Records) -> tuple[int, int]:
    return records.stats().requests, records.stats().bytes


@pytest.mark.parametrize("where", ["local", "url", "store", "file system"])
def test_joined_records_count_what_all_of_them_cost(where: str) -> None:
    with Played({"a.ffr": file_of(), "b.ffr": file_of()}) as server:
        a, b = opened("a.ffr", where, server), opened("b.ffr", where, server)
        both = anyrecord.concat([a, b, a[3:]])
        for joined in (both, anyrecord.mix([a, b, a], [1, 1, 1], length=300), anyrecord.concat([both, a, both])):
            before = costs(joined)
            assert before == tuple(x + y for x, y in zip(costs(a), costs(b), strict=True))
            for records in (a, b, joined[100:]):
                list(records[10:13])
            after = costs(joined)
            assert after == tuple(x + y for x, y in zip(costs(a), costs(b), strict=True))
            assert after[0] > before[0]
            assert after[1] >= before[1] + 9 * 20_000
            assert joined[::2].stats() == joined.stats()
        copy = pickle.loads(pickle.dumps(joined))
        assert copy[0] == joined[0]


def test_stats_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="requests"):
        anyrecord.open(file_of()).stats().requests = 1  # type: ignore[misc]
