"""`ShardQueue`: claims, leases and tokens; what a worker finds after errors of the store; states."""

from __future__ import annotations

import json
import os
import pickle
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyrecord
import pytest
from anyrecord import LeaseLostError, MemoryStore, Records, ShardPlan, ShardQueue, _shard_state
from anyrecord._shard_partitions import Partitions
from anyrecord._shard_state import Partition
from children import forked

from shards.conftest import Clock, FailingStore

Make = Callable[..., ShardQueue]


def claimed(queue: ShardQueue) -> anyrecord.Lease:
    lease = queue.claim()
    assert lease is not None
    return lease


def test_shards_come_in_the_order_of_the_plan_and_each_once(make: Make) -> None:
    queue = make()
    leases = []
    while lease := queue.claim():
        leases.append(lease)
    assert [lease.shard for lease in leases] == list(queue.plan)
    assert [lease.token for lease in leases] == list(range(1, 11))
    assert not queue.is_done()
    for lease in leases:
        lease.complete()
    assert queue.is_done()
    assert queue.claim() is None
    assert queue.wait() is False


def test_a_shard_that_is_given_back_comes_first(make: Make) -> None:
    queue = make()
    lease = claimed(queue)
    claimed(queue)
    lease.release()
    assert queue.status().waiting == 9
    again = claimed(make("other"))
    assert again.shard == lease.shard
    assert again.token == 3
    lease.release()  # it is not ours any more, and nothing happens
    again.complete()


def test_a_lease_that_is_not_renewed_goes_to_another_worker(make: Make, clock: Clock) -> None:
    dead, queue = make("dead", 100), make("alive", 100)
    lost = claimed(dead)
    assert queue.claim() is None
    clock.now += 29.9
    assert queue.claim() is None
    clock.now += 0.1
    lease = claimed(queue)
    assert lease.shard == lost.shard
    assert lease.token > lost.token
    for act in (lost.renew, lost.complete):
        with pytest.raises(
            LeaseLostError, match=r"the lease of shard 0 \(records 0 to 100\) is lost: alive has it now"
        ):
            act()
    lost.release()
    lease.renew()
    lease.complete()
    with pytest.raises(LeaseLostError, match="another worker has completed it") as error:
        lost.complete()
    assert (error.value.record, error.value.expected) == (0, "token 1")
    assert queue.is_done()


def test_a_lease_that_is_renewed_stays(make: Make, clock: Clock) -> None:
    queue, other = make("a", 100), make("b", 100)
    lease = claimed(queue)
    for _ in range(10):
        assert other.claim() is None
        clock.now += 29
        lease.renew()
    assert other.claim() is None
    lease.complete()


def test_time_counts_only_from_when_a_worker_has_seen_the_lease(make: Make, clock: Clock) -> None:
    claimed(make("dead", 100))
    clock.now += 1000
    late = make("late", 100)
    assert late.claim() is None, "it has not watched the lease for 30 seconds yet"
    clock.now += 30
    claimed(late).complete()


def test_a_worker_does_not_take_its_own_shard_away(make: Make, clock: Clock) -> None:
    queue = make("late", 100)
    lease = claimed(queue)
    clock.now += 1000
    assert queue.claim() is None
    clock.now += 1000
    assert queue.claim() is None
    lease.renew()
    del lease  # nobody can complete it now
    assert queue.claim() is None
    clock.now += 30
    claimed(queue).complete()


def test_clocks_of_workers_are_never_compared(records: Records, store: FailingStore) -> None:
    clocks = [Clock(), Clock()]
    clocks[1].now = -1e9
    plan = ShardPlan(records, shard_records=100)
    one, two = (ShardQueue(plan, store, lease_seconds=30, name="q", clock=clock) for clock in clocks)
    lease = claimed(one)
    for _ in range(5):
        assert two.claim() is None
        for clock in clocks:
            clock.now += 20
        lease.renew()
    assert two.claim() is None
    clocks[1].now += 30
    claimed(two).complete()
    with pytest.raises(LeaseLostError):
        lease.complete()


def test_a_lease_is_a_context(make: Make) -> None:
    queue = make()
    with claimed(queue) as lease:
        assert "shard 0, records 0 to 10, token 1" in repr(lease)
    assert queue.status().done == 1
    with pytest.raises(KeyError), claimed(queue):
        raise KeyError
    assert (queue.status().done, queue.status().doing, queue.status().waiting) == (1, 0, 9)


def test_a_second_complete_does_nothing(make: Make) -> None:
    queue = make()
    lease = claimed(queue)
    lease.complete()
    lease.complete()
    assert queue.status().done == 1


@pytest.mark.parametrize("faults", [["before"], ["after"], ["before", "after", "before"], ["after"] * 4])
@pytest.mark.parametrize("act", ["claim", "renew", "complete", "release"])
def test_lost_requests_and_answers_are_found_out(make: Make, store: FailingStore, act: str, faults: list[str]) -> None:
    queue = make()
    if act == "claim":
        store.faults = faults
        lease = claimed(queue)
        assert lease.shard.number == 0
        assert queue.status().doing == 1, "the claim whose answer was lost is recognised"
        return
    lease = claimed(queue)
    store.faults = faults
    getattr(lease, act)()
    status = queue.status()
    assert (status.done, status.doing) == {"renew": (0, 1), "complete": (1, 0), "release": (0, 0)}[act]


def test_a_store_that_is_gone_raises_its_error(make: Make, store: FailingStore) -> None:
    queue = make()
    lease = claimed(queue)
    store.faults = ["before"] * 20
    with pytest.raises(ConnectionError, match="the request was lost"):
        lease.complete()
    store.faults = []
    lease.complete()


def test_what_was_completed_long_ago_is_not_known_any_more() -> None:
    state = Partition(90, 200, recent=tuple(range(100, 164)))
    assert state.is_completed(150) is True
    assert state.is_completed(7) is None
    assert Partition(90, 200, recent=(5,)).is_completed(7) is False


def test_empty_shards_are_never_handed_out() -> None:
    with anyrecord.create("a.ffr") as out:
        out.write_many(bytes(1_000_000 if i == 5 else 10) for i in range(3000))
    plan = ShardPlan(anyrecord.open("a.ffr"), seed=3, shard_bytes=500)
    empty = sum(len(shard) == 0 for shard in plan)
    assert empty > 1500
    queue = ShardQueue(plan, MemoryStore())
    found = 0
    while lease := queue.claim():
        assert len(lease.shard) > 0
        found += len(lease.shard)
        lease.complete()
    assert found == 3000
    assert queue.is_done()
    assert queue.status().done == len(plan)


def test_a_plan_without_records_is_done() -> None:
    with anyrecord.create("a.ffr") as out:
        out.write_many([])
    plan = ShardPlan(anyrecord.open("a.ffr"), seed=1)
    queue = ShardQueue(plan, MemoryStore())
    assert len(plan) == 0
    assert queue.claim() is None
    assert queue.is_done()
    assert queue.wait() is False
    assert str(queue.status()) == "0 of 0 shards done (100 %)"
    assert list(anyrecord.elastic(plan.records, queue)) == []


def test_threads_get_different_shards(records: Records) -> None:
    plan, store = ShardPlan(records, shard_records=1), MemoryStore()
    seen: list[int] = []

    def work() -> None:
        queue = ShardQueue(plan, store)
        while lease := queue.claim():
            seen.append(lease.shard.number)
            lease.complete()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(100))


def test_random_schedules_complete_each_shard_once(records: Records) -> None:
    """Workers that claim, renew, complete, give back, die and sleep in any order, with errors of the store."""
    for seed in range(60):
        chance, clock, store = random.Random(seed), Clock(), FailingStore()
        plan = ShardPlan(records, seed=seed, shard_records=chance.choice([1, 7, 30]))

        def make(
            number: int, plan: ShardPlan = plan, store: FailingStore = store, clock: Clock = clock
        ) -> tuple[ShardQueue, list[anyrecord.Lease]]:
            return ShardQueue(plan, store, lease_seconds=10, worker=str(number), clock=clock), []

        workers = [make(number) for number in range(4)]
        done: Counter[int] = Counter()
        while not workers[0][0].is_done():
            number = chance.randrange(4)
            queue, leases = workers[number]
            store.faults = [chance.choice(["", "", "before", "after"]) for _ in range(3)]
            clock.now += chance.choice([0, 0.1, 1, 4])
            act = chance.choice(["claim", "claim", "renew", "complete", "complete", "complete", "release", "die"])
            if act == "claim" and (lease := queue.claim()):
                leases.append(lease)
            elif act == "die" and chance.random() < 0.2:
                workers[number] = make(number)
            elif act in ("renew", "complete", "release") and leases:
                lease = leases.pop(chance.randrange(len(leases)))
                try:
                    getattr(lease, act)()
                except LeaseLostError:
                    continue
                if act == "renew":
                    leases.append(lease)
                done[lease.shard.number] += act == "complete"
        assert sorted(done.elements()) == [shard.number for shard in plan if len(shard)]


# What is in the store


def test_a_queue_of_another_plan_on_the_same_name_is_an_error(
    make: Make, records: Records, store: FailingStore
) -> None:
    make()
    with pytest.raises(
        ValueError, match=r"another queue named 'q': the plan's fingerprint is .*, the number of shards is 10"
    ):
        make(shard_records=20)
    with pytest.raises(ValueError, match=r"named 'q': lease_seconds is 30.0 there and 5.0 here; use the same"):
        make(lease_seconds=5)
    other = ShardQueue(ShardPlan(records, seed=1), store)
    assert other.name != ShardQueue(ShardPlan(records, seed=1, epoch=1), store).name


@pytest.mark.parametrize(
    "value", [b"", b"{}", b'[2,0,0,[],[],[],"","x"]', b'[1,99,0,[],[],[],"","x"]', b"\xff", b"[" * 99999]
)
def test_what_no_queue_wrote_is_an_error(make: Make, store: FailingStore, value: bytes) -> None:
    queue = make()
    store._values["q/0"] = value
    with pytest.raises(ValueError, match="the store has a value that no ShardQueue wrote"):
        queue.claim()


def test_a_store_that_forgets_is_noticed(make: Make, store: FailingStore) -> None:
    queue = make()
    claimed(queue).complete()
    queue.status()
    store._values.clear()
    with pytest.raises(RuntimeError, match="the store has lost the queue 'q': what was at 'q/0' is gone"):
        queue.claim()


def test_a_lease_of_a_lost_store_cannot_complete_a_shard_of_the_new_one(make: Make, store: FailingStore) -> None:
    old = make("old")
    state = old.state_dict()
    late = claimed(old)
    store._values.clear()  # it restarts without its values, and new workers restore the queue
    queue = make("new")
    queue.load_state_dict(state)
    lease = claimed(queue)
    assert (lease.shard, lease.token) == (late.shard, late.token)
    for act in (late.renew, late.complete, old.claim, old.is_done):
        with pytest.raises(RuntimeError, match="the store has lost the queue 'q'"):
            act()
    assert forked(lambda: _refused(late)) == "refused"
    assert queue.status().doing == 1
    lease.complete()


def _refused(lease: anyrecord.Lease) -> str:
    store = lease._queue._parts.store
    assert isinstance(store, MemoryStore)
    store._process = os.getpid()
    try:
        lease.complete()
    except RuntimeError as error:
        return "refused" if "lost" in str(error) else str(error)
    return "completed"


@pytest.mark.parametrize("shards", [1, 2, 63, 64, 65, 129, 4095, 4096, 5000, 10_000_000])
def test_each_shard_is_in_one_partition(shards: int) -> None:
    parts = Partitions(MemoryStore(), "q", shards, float)
    assert parts.count == min(64, -(-shards // 64))
    begin = 0
    for part in range(parts.count):
        assert parts.bounds(part)[0] == begin
        begin = parts.bounds(part)[1]
        assert all(parts.part_of(shard) == part for shard in (parts.bounds(part)[0], begin - 1))
    assert begin == shards


def test_no_value_is_written_twice_and_all_stay_small(make: Make, store: FailingStore, records: Records) -> None:
    state = Partition(3)
    assert _shard_state.encode(state, "a") != _shard_state.encode(state, "b")
    queue = make(shard_records=1)
    while lease := queue.claim():
        lease.renew()
        lease.complete()
    assert all(len(value) < 500 for value in store._values.values())


def test_a_claim_asks_the_store_twice(make: Make, store: FailingStore) -> None:
    queue = make()
    store.calls.clear()
    lease = claimed(queue)
    assert store.calls == ["get", "compare_set"]
    lease.renew()
    lease.complete()
    assert store.calls == ["get", "compare_set"] * 3


def test_status_says_who_holds_what_for_how_long(make: Make, clock: Clock) -> None:
    one, two = make("one"), make("two")
    first = claimed(one)
    clock.now += 5
    claimed(two)
    first.renew()
    clock.now += 2
    status = two.status()
    assert (status.shards, status.done, status.doing, status.waiting) == (10, 0, 2, 8)
    assert [(held.shard, held.worker, held.quiet_seconds) for held in status.held] == [(0, "one", 0.0), (1, "two", 2.0)]
    clock.now += 1
    status = two.status()
    assert [(held.worker, held.seconds, held.quiet_seconds) for held in status.held] == [("one", 6, 1), ("two", 3, 3)]
    assert str(status) == "0 of 10 shards done (0 %), 2 doing, 8 waiting; longest: shard 0, 6 s by one"
    assert not status.is_done


def test_wait_returns_when_there_is_something_to_claim(
    make: Make, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, other = make("a", 100), make("b", 100)
    assert queue.wait() is True
    claimed(other)
    pauses = []

    def pause() -> None:
        pauses.append(clock.now)
        clock.now += 10

    monkeypatch.setattr(queue, "_pause", pause)
    assert queue.wait() is True
    assert len(pauses) == 3


# States


def test_a_state_is_restored_with_any_number_of_workers(records: Records) -> None:
    for seed, (before, after) in enumerate([(1, 1), (5, 2), (2, 5), (1, 8), (8, 1)]):
        chance = random.Random(seed)
        plan = ShardPlan(records, seed=seed, shard_records=1)
        queues = [ShardQueue(plan, store, worker=str(n)) for store in [MemoryStore()] for n in range(before)]
        done: list[int] = []
        tokens: dict[int, int] = {}
        held = []
        for _ in range(50):
            lease = claimed(chance.choice(queues))
            tokens[lease.shard.number] = lease.token
            if chance.random() < 0.7:
                lease.complete()
                done.append(lease.shard.number)
            elif chance.random() < 0.3:
                lease.release()
            else:
                held.append(lease)
        state = json.loads(json.dumps(queues[0].state_dict()))
        # Everything is killed: the store, and all workers.
        store = MemoryStore()
        queues = [ShardQueue(plan, store, worker=str(n)) for n in range(after)]
        for queue in queues:
            queue.load_state_dict(state)
        assert queues[0].status().done == len(done)
        while resumed := chance.choice(queues).claim():
            assert resumed.token > tokens.get(resumed.shard.number, 0)
            resumed.complete()
            done.append(resumed.shard.number)
        assert sorted(done) == list(range(len(plan)))
        assert all(queue.is_done() for queue in queues)


def test_workers_that_load_late_do_not_undo_what_was_done(make: Make, records: Records) -> None:
    queue = make()
    claimed(queue).complete()
    state = queue.state_dict()
    plan, store = queue.plan, MemoryStore()
    first = ShardQueue(plan, store, worker="first")
    first.load_state_dict(state)
    claimed(first).complete()
    second = ShardQueue(plan, store, worker="second")
    second.load_state_dict(state)
    assert second.status().done == 2


def test_a_store_with_progress_of_its_own_refuses_a_state(make: Make) -> None:
    queue = make()
    state = queue.state_dict()
    queue.load_state_dict(state)  # the same
    claimed(queue).complete()
    later = queue.state_dict()
    queue.load_state_dict(later)  # the same again
    claimed(queue)
    with pytest.raises(ValueError, match="progress of its own"):
        queue.load_state_dict(later)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"partitions": []},
        {"partitions": [{"next": 11, "token": 0, "waiting": []}]},
        {"partitions": [{"next": 1, "token": 0, "waiting": [1]}]},
        {"partitions": [{"next": 1, "token": 0, "waiting": [0, 0]}]},
        {"partitions": [{"next": True, "token": 0, "waiting": []}]},
        {"partitions": [{"next": 1}]},
        {"partitions": None},
    ],
)
def test_what_is_not_a_state_is_refused(make: Make, change: dict[str, Any]) -> None:
    queue = make()
    with pytest.raises(ValueError, match="this is not the state of a ShardQueue"):
        queue.load_state_dict({**queue.state_dict(), **change})
    assert queue.status().waiting == 10


def test_the_state_of_another_plan_is_refused(make: Make, records: Records) -> None:
    other = ShardQueue(ShardPlan(records, seed=5), MemoryStore())
    with pytest.raises(ValueError, match="the state is from another plan"):
        make().load_state_dict(other.state_dict())


# Processes


def test_a_memory_store_is_refused_in_other_processes(make: Make) -> None:
    queue = make()
    with pytest.raises(TypeError, match="between processes, use a torch TCPStore"):
        pickle.dumps(queue)
    with pytest.raises(RuntimeError, match="a forked process has a copy of the MemoryStore only"):
        forked(queue.claim)


class GlobalStore:
    """A store that can be pickled, because it is the same in this process."""

    def get(self, key: str) -> bytes | None:
        return SHARED.get(key)

    def compare_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        return SHARED.compare_set(key, expected, value)


SHARED = MemoryStore()


def test_a_pickled_queue_is_the_same_queue(records: Records) -> None:
    queue = ShardQueue(ShardPlan(records, shard_records=10), GlobalStore(), name="pickled", lease_seconds=7)
    claimed(queue).complete()
    again = pickle.loads(pickle.dumps(queue))
    assert (again.name, again.lease_seconds, again.status().done) == ("pickled", 7, 1)
    assert "10 shards, name 'pickled'" in repr(again)


def test_wrong_arguments_are_refused(records: Records) -> None:
    plan = ShardPlan(records)
    with pytest.raises(TypeError, match="a ShardQueue takes a ShardPlan, not Records"):
        ShardQueue(records, MemoryStore())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dict is not a store for shards: pass a torch TCPStore, a Redis client"):
        ShardQueue(plan, {})
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"lease_seconds=.* is not valid"):
            ShardQueue(plan, MemoryStore(), lease_seconds=seconds)
    with pytest.raises(TypeError, match="lease_seconds= takes a number of seconds"):
        ShardQueue(plan, MemoryStore(), lease_seconds="soon")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name= takes a text"):
        ShardQueue(plan, MemoryStore(), name="")


def test_a_second_complete_does_nothing_however_late(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyrecord._shard_partitions._MOST_PARTITIONS", 1)
    queue = make(shard_records=1)
    leases = []
    while lease := queue.claim():
        lease.complete()
        leases.append(lease)
    for lease in leases:
        lease.complete()
    assert len(leases) == 100


def test_the_error_of_a_block_is_seen_also_if_the_store_is_gone(make: Make, store: FailingStore) -> None:
    lease = claimed(make())
    store.faults = ["before"] * 99
    with pytest.raises(KeyError, match="ours"), lease:
        raise KeyError("ours")


def test_a_server_that_restarts_is_waited_for(make: Make, store: FailingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyrecord._shard_partitions._FIRST_RETRY_SECONDS", 0.05)
    pauses: list[float] = []
    monkeypatch.setattr("anyrecord._shard_partitions.time.sleep", pauses.append)
    queue = make()
    store.faults = ["before"] * 7
    claimed(queue).complete()
    assert 6 < sum(pauses) < 7
    store.faults = ["before"] * 8
    with pytest.raises(ConnectionError):
        queue.claim()


def test_a_shard_whose_lease_has_expired_comes_before_new_ones(make: Make, clock: Clock, store: FailingStore) -> None:
    queue = make("alive", shard_records=2)
    for _ in range(30):  # a worker dies in every lease; the value does not grow with the dead ones
        dead = claimed(make("dead", shard_records=2))
        queue.status()
        clock.now += 30
        lease = claimed(queue)
        assert lease.shard == dead.shard
        lease.complete()
    assert queue.status().doing == 0
    assert all(len(value) < 500 for value in store._values.values())


def test_wait_gives_back_what_has_expired_to_workers_that_have_just_started(
    make: Make, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make("waits", 100)
    lost = claimed(make("dead", 100))

    def pause() -> None:
        clock.now += 10

    monkeypatch.setattr(queue, "_pause", pause)
    assert queue.wait() is True
    new = claimed(make("has seen nothing", 100))
    assert new.shard == lost.shard
    with pytest.raises(LeaseLostError):
        lost.complete()
    new.complete()
    assert queue.wait() is False
