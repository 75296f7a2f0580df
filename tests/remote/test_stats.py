"""`records.stats()` counts what the server sees."""

from __future__ import annotations

import io
from dataclasses import FrozenInstanceError

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


def test_records_of_local_files_have_the_same_counters() -> None:
    with open("a.ffr", "wb") as file:
        file.write(file_of())
    stats = anyrecord.open("a.ffr").stats()
    assert stats == anyrecord.Stats(0, 0, 0, 0.0, 0, 0)
    with pytest.raises(FrozenInstanceError):
        stats.requests = 1  # type: ignore[misc]
