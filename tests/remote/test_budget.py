"""Requests are sent again within a budget of tries and of time, whatever a server does."""

from __future__ import annotations

import io

import anyrecord
import pytest

from .files import bytes_of
from .servers import Played, faults

RECORDS = [bytes([i]) * 20_000 for i in range(60)]
QUICK = {"max_retries": 3, "init_backoff": "1ms", "max_backoff": "2ms"}


def file_of() -> bytes:
    return bytes_of("ffrecord", RECORDS)


@pytest.mark.parametrize("value", ["18446744073709551615", "4294967295", "1e300", "-1", "soon"])
def test_a_server_cannot_make_a_call_wait_for_ever(value: str) -> None:
    with Played({"a.ffr": file_of()}) as server:
        url, own = server.url("a.ffr"), {**server.storage, **QUICK}
        records = anyrecord.open(url, storage=own)
        server.play(faults.error(503, "SlowDown", headers={"retry-after": value}))
        for read in (lambda: records[5], lambda: list(records), lambda: anyrecord.open(url, storage=own)):
            with pytest.raises(OSError, match="503 SlowDown"):
                read()


def test_a_few_bytes_are_no_progress() -> None:
    with Played({"a.ffr": file_of()}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage={**server.storage, **QUICK})
        server.clear()
        server.play(faults.truncate(100))
        with pytest.raises(OSError, match="tried 4 times"):
            records[5]
        assert server.requests == 4


def test_a_large_part_has_its_tries_again_after_each_mebibyte() -> None:
    record = bytes(range(256)) * (24 << 10)
    out = io.BytesIO()
    with anyrecord.create(out, format="ffrecord") as writer:
        writer.write_many([b"x" * 200_000, record])
    with Played({"a.ffr": out.getvalue()}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage={**server.storage, **QUICK})
        server.clear()
        server.play(faults.truncate((1 << 20) + 5), number=range(1, 6))
        assert records[1] == record


def test_a_page_of_a_listing_that_fails_is_asked_for_again_and_not_the_whole_listing() -> None:
    objects = {f"d/x-{i:03}.ffr": file_of() for i in range(20)}
    with Played(objects, page=1) as server:
        server.play(faults.internal_error(), number=[3, 11, 12])
        records = anyrecord.open(server.url("d/"), storage={**server.storage, **QUICK})
        assert len(records.paths) == 20
        assert sum(not entry.key for entry in server.log) == 23


def test_the_error_of_fetching_ahead_is_the_error_of_reading() -> None:
    """A second round of tries would take the whole budget again."""
    with Played({"a.ffr": file_of()}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage={**server.storage, **QUICK, "part_size": 100_000})
        read = iter(records)
        assert next(read) == RECORDS[0]
        server.clear()
        server.play(faults.internal_error())
        with pytest.raises(OSError, match=r"tried 4 times.*500"):
            list(read)
        tries = [entry.range for entry in server.log]
        assert max(map(tries.count, tries)) == 4


def test_an_iteration_goes_on_at_the_same_record_after_a_failure() -> None:
    with Played({"a.ffr": file_of()}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage={**server.storage, **QUICK, "readahead_bytes": 0})
        for read in (iter(records), iter(records.map(bytes))):
            assert [next(read) for _ in range(14)] == RECORDS[:14]
            server.clear()
            server.play(faults.internal_error())
            rest: list[bytes] = []
            with pytest.raises(OSError, match="500"):
                rest.extend(read)
            tries = [entry.range for entry in server.log]
            assert max(map(tries.count, tries)) == 4
            server.clear()
            assert rest + list(read) == RECORDS[14:]


def test_batches_go_on_at_the_same_record_after_a_failure() -> None:
    with Played({"a.ffr": file_of()}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage={**server.storage, **QUICK, "readahead_bytes": 0})
        batches = iter(records.batches(7))
        assert next(batches) == RECORDS[:7]
        server.play(faults.internal_error())
        found: list[list[bytes]] = []
        with pytest.raises(OSError, match="500"):
            found.extend(batches)
        server.clear()
        assert [record for batch in [*found, *batches] for record in batch] == RECORDS[7:]
