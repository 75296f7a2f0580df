"""The simulation of many workers: time passes, requests and conflicts are counted, and every shard is done."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import anyrecord
import pytest

from benches.simulated_workers import CountingStore, Job, Simulation, simulate


@pytest.fixture
def plan(tmp_path: Path) -> anyrecord.ShardPlan:
    with anyrecord.create(tmp_path / "numbers.ffr") as out:
        out.write_many(b"%d" % i for i in range(200))
    return anyrecord.ShardPlan(anyrecord.open(tmp_path / "numbers.ffr"), shard_records=2)


def test_workers_take_turns_in_simulated_time() -> None:
    simulation, told = Simulation(1), []

    def work(name: str, seconds: float) -> None:
        for _ in range(3):
            simulation.sleep(seconds)
            told.append((round(simulation.now, 3), name))

    simulation.run([partial(work, "slow", 5.0), partial(work, "fast", 2.0)], 0.0)
    assert told == [(2.0, "fast"), (4.0, "fast"), (5.0, "slow"), (6.0, "fast"), (10.0, "slow"), (15.0, "slow")]


def test_an_error_of_a_worker_is_raised() -> None:
    def fail() -> None:
        raise LookupError("worker")

    with pytest.raises(LookupError, match="worker"):
        Simulation(1).run([fail, lambda: None], 0.0)
    assert threading.active_count() < 10


def test_requests_that_come_between_are_conflicts() -> None:
    simulation = Simulation(1)
    store = CountingStore(simulation, 1.0)

    def create(value: bytes) -> None:
        store.compare_set("key", store.get("key"), value)

    simulation.run([partial(create, b"a"), partial(create, b"b")], 0.0)
    assert store.conflicts["start"] == 1
    assert (store.requests["get start"], store.requests["compare_set start"]) == (2, 2)
    assert simulation.now == 2.0


def test_every_shard_is_done_in_about_the_time_that_the_workers_need(plan: anyrecord.ShardPlan) -> None:
    store, ended = simulate(plan, Job(workers=10, shard_seconds=60, lease_seconds=30, start_seconds=1))
    assert 10 * 60 * 0.8 < ended["seconds"] < 10 * 60 * 1.4
    assert store.requests["compare_set complete"] - store.conflicts["complete"] == len(plan) == 100
    assert store.requests["compare_set renew"] > 400  # every 10 of 30 to 90 seconds
    assert sum(store.per_second.values()) == sum(store.requests.values())
