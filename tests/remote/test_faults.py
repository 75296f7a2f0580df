"""A server that fails in every way: right data, or a clear error within the time budget."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import anyrecord
import pytest

from remote.servers import Played, faults

from .files import bytes_of

pytestmark = pytest.mark.filterwarnings("ignore:opening searched")
RECORDS = [random.Random(number).randbytes(300 + 7 * number % 5000) for number in range(200)]
SOON = {"init_backoff": "1ms", "max_backoff": "5ms", "max_retries": 1000, "read_timeout": "300ms"}
"""Retries without long waits."""


def file_bytes(format: str, records: list[bytes], **options: Any) -> bytes:
    return bytes_of(format, records, **options)


FILES = {
    "a.ffr": file_bytes("ffrecord", RECORDS),
    "a.array_record": file_bytes("array_record", RECORDS, group_size=3),
    "a.recordio": file_bytes("recordio", RECORDS, codec="none", chunk_bytes=8192),
    "a.tfrecord": file_bytes("tfrecord", RECORDS),
}


@pytest.fixture
def server() -> Iterator[Played]:
    with Played(FILES) as played:
        yield played


def opened(server: Played, name: str = "a.ffr", **storage: Any) -> anyrecord.Records:
    return anyrecord.open(server.url(name), storage={**server.storage, **SOON, "merge_gap": 0, **storage})


PASSING = {
    "reset before the answer": faults.reset(),
    "reset in the body": faults.reset(after=0.5),
    "closed": faults.close(),
    "cut short": faults.truncate(after=0.3),
    "stalled before the answer": faults.stall(),
    "stalled in the body": faults.stall(after=0.5),
    "500": faults.internal_error(),
    "503": faults.slow_down(),
    "429": faults.too_many_requests(),
}


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("name", FILES)
def test_a_fault_that_passes_is_not_noticed(server: Played, name: str, fault: str) -> None:
    rule = server.play(PASSING[fault], number={1, 2, 4, 7})
    records = opened(server, name)
    assert records[100] == RECORDS[100]
    assert list(records) == RECORDS
    assert rule.played >= 2
    assert dict(records._source.stats())["retries"] == rule.played


def test_ten_thousand_requests_to_a_server_that_fails_at_random() -> None:
    """Every third request fails, each time in another way. All that is read is right."""
    draw, requests, retries = random.Random(7), 0, 0
    with Played(FILES) as server:
        quick = {kind: fault for kind, fault in PASSING.items() if "stalled" not in kind}
        for number, fault in enumerate(quick.values()):
            server.play(fault, chance=0.05, seed=number)
        server.play(faults.stall(after=0.5), chance=0.0005, seed=99)
        while requests < 10_000:
            name = draw.choice(sorted(FILES))
            records = opened(server, name, retry_timeout="600s", part_size=8192)
            for _ in range(4):
                chosen = draw.choices(range(len(RECORDS)), k=40)
                assert records[chosen] == [RECORDS[index] for index in chosen], name
            assert list(records.shuffle(requests)) == [RECORDS[i] for i in order_of(records, requests)]
            stats = dict(records._source.stats())
            requests += stats["requests"]
            retries += stats["retries"]
    assert retries > 2_000
    print(f"{requests} requests, {retries} of them sent again, no wrong byte")


def order_of(records: anyrecord.Records, seed: int) -> list[int]:
    shuffled = records.shuffle(seed)
    return [shuffled._place(position)[2] for position in range(len(shuffled))]


@pytest.mark.parametrize("fault", ["500", "503", "429", "reset before the answer", "cut short"])
def test_a_fault_that_stays_is_an_error_within_the_budget(server: Played, fault: str) -> None:
    records = opened(server)
    server.play(PASSING[fault])
    before = time.monotonic()
    with pytest.raises(OSError) as caught:
        opened(server, max_retries=5)
    with pytest.raises(OSError):
        anyrecord.open(server.url("a.ffr"), storage={**server.storage, **SOON, "retry_timeout": "200ms"})
    assert time.monotonic() - before < 60
    text = str(caught.value)
    assert server.url("a.ffr") in text
    assert "tried 6 times" in text
    del records


def test_a_stall_that_stays_is_a_timeout(server: Played) -> None:
    server.play(faults.stall())
    with pytest.raises(TimeoutError, match="sends nothing"):
        opened(server, max_retries=2, read_timeout="50ms")


def test_an_overloaded_server_gets_fewer_requests_at_once() -> None:
    with Played(FILES, gate=True) as server:
        records = opened(server, max_requests=16)
        server.clear()
        rule = server.play(faults.slow_down(), times=16)
        assert records[list(range(0, 200, 2))] == RECORDS[::2]  # none beside another: a request each
        assert rule.played == 16
        waves = [entry.wave for entry in server.log]
        assert waves.count(min(waves)) == 16
        after = [waves.count(wave) for wave in sorted(set(waves))][1:]
        assert max(after[:2]) <= 9
        assert max(after) > max(after[:2])


@pytest.mark.parametrize("ignores", [False, True])
def test_an_object_that_changes_is_an_error_never_mixed_data(server: Played, ignores: bool) -> None:
    """The server may ignore the condition of a request: then the tag of its answer tells."""
    records = opened(server)
    assert records[0] == RECORDS[0]
    server.put("a.ffr", file_bytes("ffrecord", RECORDS[::-1]))
    if ignores:
        server.play(faults.ignore_conditions())
    with pytest.raises(anyrecord.FormatError, match="changed"):
        records[1]
    with pytest.raises(anyrecord.FormatError, match="changed"):
        list(records)
    assert opened(server)[0] == RECORDS[-1]


def test_an_object_that_changes_between_the_parts_of_a_record_is_an_error() -> None:
    record, other = (random.Random(seed).randbytes(500_000) for seed in (1, 2))
    with Played({"a.ffr": file_bytes("ffrecord", [b"x" * 200_000, record])}) as server:
        records = opened(server, part_size=50_000, max_bytes_in_flight=60_000)
        replacement = file_bytes("ffrecord", [b"x" * 200_000, other])
        server.play(faults.replaced(replacement), number=5)
        with pytest.raises(anyrecord.FormatError, match="changed"):
            records[1]
