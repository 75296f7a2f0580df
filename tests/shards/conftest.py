"""A queue with a clock that only the test moves, and a store that fails when the test wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import anyrecord
import pytest
from anyrecord import MemoryStore, Records, ShardPlan, ShardQueue


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FailingStore(MemoryStore):
    """Raises for the next calls, as `faults` says: before it has done what it was asked for, or after that."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.calls: list[str] = []

    def get(self, key: str) -> bytes | None:
        self.calls.append("get")
        return super().get(key)

    def compare_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        self.calls.append("compare_set")
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "before":
            raise ConnectionError("the request was lost")
        is_set = super().compare_set(key, expected, value)
        if fault == "after":
            raise ConnectionError("the answer was lost")
        return is_set


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> FailingStore:
    return FailingStore()


@pytest.fixture
def records() -> Iterator[Records]:
    with anyrecord.create("records.ffr") as out:
        out.write_many(b"%03d" % i for i in range(100))
    with anyrecord.open("records.ffr") as records:
        yield records


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts to reach a store are repeated at once."""
    monkeypatch.setattr("anyrecord._shard_partitions._FIRST_RETRY_SECONDS", 0.0)


@pytest.fixture
def make(records: Records, store: FailingStore, clock: Clock) -> Callable[..., ShardQueue]:
    """Makes queues of 10 shards on the same store: one for each worker."""

    def made(worker: str = "w", shard_records: int = 10, lease_seconds: float = 30.0) -> ShardQueue:
        plan = ShardPlan(records, shard_records=shard_records)
        return ShardQueue(plan, store, lease_seconds=lease_seconds, name="q", worker=worker, clock=clock)

    return made
