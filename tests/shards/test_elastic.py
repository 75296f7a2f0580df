"""`anyrecord.elastic`: the loop of a worker, what it leaves behind, and ranks that end together."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import termios
import threading
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import MemoryStore, Records, ShardPlan, ShardQueue, _elastic_progress, elastic
from children import forked

from shards.conftest import Clock, FailingStore

Make = Callable[..., ShardQueue]
EVERY = [b"%03d" % i for i in range(100)]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Any:
    before = set(threading.enumerate())
    yield
    gc.collect()
    assert [thread for thread in threading.enumerate() if thread not in before] == []


def quick(queue: ShardQueue, clock: Clock, monkeypatch: pytest.MonkeyPatch, seconds: float = 10) -> ShardQueue:
    """A queue whose waiting moves the clock."""

    def pause() -> None:
        clock.now += seconds

    monkeypatch.setattr(queue, "_pause", pause)
    return queue


def test_one_worker_gets_every_record(make: Make, records: Records) -> None:
    queue = make()
    loop = elastic(records, queue)
    assert list(loop) == EVERY
    assert (loop.completed, loop.lost, loop.lease) == (10, 0, None)
    assert queue.is_done()
    assert list(elastic(records, queue)) == []


def test_mapped_records_and_batches(make: Make, records: Records, store: FailingStore) -> None:
    assert list(elastic(records.map(int), make())) == list(range(100))
    queue = ShardQueue(ShardPlan(records, shard_records=10), MemoryStore())
    batches = list(elastic(records.map(int), queue, batch_size=7))
    assert [len(batch) for batch in batches] == [7] * 14 + [2]
    assert [number for batch in batches for number in batch] == list(range(100))
    assert queue.is_done()


def test_an_error_of_the_function_names_the_record(make: Make, records: Records) -> None:
    def function(record: bytes) -> int:
        if record == b"037":
            raise KeyError(record)
        return int(record)

    queue = make()
    with pytest.raises(KeyError) as error:
        list(elastic(records.map(function), queue))
    assert error.value.__notes__ == [f"in the function on record 37 of {records.paths[0]}"]
    del error
    gc.collect()
    assert (queue.status().done, queue.status().doing) == (3, 0)


def test_several_workers_share_the_records(records: Records) -> None:
    plan, store = ShardPlan(records, seed=1, shard_records=3), MemoryStore()
    found: list[list[bytes]] = [[] for _ in range(4)]

    def work(number: int) -> None:
        found[number].extend(elastic(records, ShardQueue(plan, store, lease_seconds=0.5)))

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record for part in found for record in part) == EVERY


def test_a_shard_is_complete_when_the_record_after_its_last_is_asked_for(make: Make, records: Records) -> None:
    queue = make()
    loop = elastic(records, queue)
    for _ in range(10):
        next(loop)
    assert queue.status().done == 0
    next(loop)
    assert queue.status().done == 1
    loop.close()
    assert queue.status().done == 1
    assert queue.status().doing == 0


def test_a_batch_over_two_shards_completes_the_first_when_the_next_batch_is_asked_for(
    make: Make, records: Records
) -> None:
    queue = make()
    with elastic(records, queue, batch_size=15) as loop:
        next(loop)
        assert queue.status().done == 0
        next(loop)
        assert queue.status().done == 1


def test_an_error_in_the_loop_gives_the_shard_back(make: Make, records: Records) -> None:
    queue = make()

    def work() -> None:
        for record in elastic(records, queue):
            if record == b"025":
                raise KeyError

    with pytest.raises(KeyError):
        work()
    gc.collect()
    status = queue.status()
    assert (status.done, status.doing, status.waiting) == (2, 0, 8)
    assert list(elastic(records, queue)) == EVERY[20:]


def test_a_loop_that_is_dropped_or_closed_gives_the_shard_back(make: Make, records: Records) -> None:
    queue = make()
    loop = elastic(records, queue)
    next(loop)
    del loop
    gc.collect()
    assert queue.status().waiting == 10
    loop = elastic(records, queue)
    next(loop)
    assert queue.status().doing >= 1
    loop.close()
    loop.close()
    assert queue.status().waiting == 10
    with pytest.raises(StopIteration):
        next(loop)


def test_a_loop_that_its_own_thread_collects_gives_the_shard_back(
    make: Make, records: Records, store: FailingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop in a cycle of references ends in whatever thread the garbage is collected in."""
    errors: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda *args: errors.append(args))
    queue = make(lease_seconds=0.03)
    loop = elastic(records, queue)
    next(loop)
    [thread] = loop._kept._threads
    cycle: list[Any] = [loop]
    cycle.append(cycle)
    get = store.get
    collected = threading.Event()

    def collect(key: str) -> bytes | None:
        if threading.current_thread() is thread and may_collect.is_set() and not collected.is_set():
            gc.collect()
            collected.set()
        return get(key)

    may_collect = threading.Event()
    monkeypatch.setattr(store, "get", collect)
    gc.disable()
    try:
        del loop, cycle
        may_collect.set()
        assert collected.wait(60)
    finally:
        gc.enable()
    thread.join(60)
    assert not thread.is_alive()
    assert errors == []
    assert queue.status().waiting == 10


def test_the_lease_is_renewed_in_the_background(records: Records) -> None:
    queue = ShardQueue(ShardPlan(records, shard_records=100), MemoryStore(), lease_seconds=0.02)
    renewed = threading.Event()
    state = queue._parts.look
    with elastic(records, queue) as loop:
        first = next(loop)
        assert loop.lease is not None
        while not renewed.wait(0.001):
            if state(0)[0].held[0].beat >= 3:
                renewed.set()
        assert [first, *loop] == EVERY


def test_a_lost_shard_is_dropped_and_not_completed(make: Make, records: Records, clock: Clock) -> None:
    queue, other = make("slow"), make("quick")
    loop = elastic(records, queue)
    assert [next(loop) for _ in range(3)] == EVERY[:3]
    while other.claim():
        pass
    clock.now += 30
    taken = other.claim()
    assert taken is not None
    assert taken.shard.number == 0
    assert loop.lease is not None
    with pytest.raises(anyrecord.LeaseLostError):
        loop.lease.renew()  # what the thread does a third of the lease later
    taken.complete()
    for shard in list(other.status().held):
        lease = anyrecord.Lease(other, other.plan[shard.shard], shard.token, 0)
        lease.release()
    assert list(loop) == EVERY[10:]
    assert (loop.completed, loop.lost) == (9, 1)


def test_a_shard_that_was_lost_unnoticed_is_not_completed(make: Make, records: Records, clock: Clock) -> None:
    queue, other = make("slow", 100), make("quick", 100)
    loop = elastic(records, queue)
    before = [next(loop) for _ in range(100)]
    assert other.claim() is None
    clock.now += 30
    taken = other.claim()
    assert taken is not None
    taken.complete()
    assert list(loop) == []
    assert before == EVERY
    assert (loop.completed, loop.lost) == (0, 1)


def test_it_waits_for_shards_of_others_and_takes_them_when_they_die(
    make: Make, records: Records, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = make("dead").claim()
    assert dead is not None
    queue = quick(make("alive"), clock, monkeypatch)
    assert list(elastic(records, queue)) == [*EVERY[10:], *EVERY[:10]]


def test_until_idle_does_not_wait(make: Make, records: Records) -> None:
    held = make("other").claim()
    assert held is not None
    queue = make()
    assert list(elastic(records, queue, until="idle")) == EVERY[10:]
    assert not queue.is_done()
    held.complete()
    assert queue.is_done()


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_ranks_in_step_end_together(records: Records, ranks: int, batch_size: int | None) -> None:
    plan, store = ShardPlan(records, seed=2, shard_records=9), MemoryStore()
    meeting, votes = threading.Barrier(ranks), [0] * ranks
    steps: list[list[Any]] = [[] for _ in range(ranks)]

    def work(rank: int) -> None:
        def vote(number: int) -> int:
            votes[rank] = number
            meeting.wait(60)
            most = max(votes)
            meeting.wait(60)
            return most

        queue = ShardQueue(plan, store, lease_seconds=0.5)
        for found in elastic(records, queue, until="all_done", batch_size=batch_size, vote=vote):
            steps[rank].append(found)

    threads = [threading.Thread(target=work, args=[rank]) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({len(part) for part in steps}) == 1
    assert all(any(part[step] is not None for part in steps) for step in range(len(steps[0])))
    found = [each for part in steps for each in part if each is not None]
    assert sorted(found if batch_size is None else chain(*found)) == EVERY


def test_a_damaged_record_raises_and_the_loop_can_go_on(make: Make, records: Records) -> None:
    damaged = bytearray(Path(records.paths[0]).read_bytes())
    damaged[-3 * 60] ^= 1
    sound = anyrecord.open(bytes(damaged))
    queue = ShardQueue(ShardPlan(sound, shard_records=10), MemoryStore())
    with elastic(sound, queue) as loop:
        assert [next(loop) for _ in range(40)] == EVERY[:40]
        with pytest.raises(anyrecord.ChecksumError):
            next(loop)
        assert list(loop) == EVERY[41:]
    assert queue.is_done()
    skipping = anyrecord.open(bytes(damaged), on_error="skip")
    again = ShardQueue(ShardPlan(skipping, shard_records=1), MemoryStore())
    with pytest.warns(anyrecord.DamageWarning):
        found = list(elastic(skipping, again))
    assert sorted(found) == EVERY[:40] + EVERY[41:]


def test_a_damaged_record_in_a_batch_costs_no_other_record(records: Records) -> None:
    damaged = bytearray(Path(records.paths[0]).read_bytes())
    for record in (40, 77):
        damaged[3 * (record - 100)] ^= 1
    sound = anyrecord.open(bytes(damaged))
    queue = ShardQueue(ShardPlan(sound, shard_records=10), MemoryStore())
    found, errors = [], 0
    with elastic(sound, queue, batch_size=17) as loop:
        while True:
            try:
                found += next(loop)
            except anyrecord.ChecksumError:
                errors += 1
                done = queue.status().done
                assert done * 10 <= len(found), "shards with records that were not delivered are not complete"
            except StopIteration:
                break
    assert errors == 2
    assert found == [record for record in EVERY if record not in (b"040", b"077")]


def test_errors_of_the_store_reach_the_loop_and_it_can_go_on(make: Make, records: Records, store: FailingStore) -> None:
    queue = make()
    with elastic(records, queue) as loop:
        before = [next(loop) for _ in range(7)]
        store.faults = ["after", "before"] * 2
        assert [*before, *loop] == EVERY
    assert queue.is_done()


def test_a_forked_child_leaves_the_shard_to_its_parent(make: Make, records: Records) -> None:
    queue = make()
    loop = elastic(records, queue)
    next(loop)

    def child() -> str:
        with pytest.raises(RuntimeError, match="this iterator belongs to the process that made it"):
            next(loop)
        loop.close()
        return "closed"

    assert forked(child) == "closed"
    assert queue.status().doing == 1
    assert list(loop) == EVERY[1:]


def test_progress_is_printed(make: Make, records: Records, capsys: pytest.CaptureFixture[str]) -> None:
    list(elastic(records, make(), progress=True))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("0 of 10 shards done (0 %)")
    assert lines[-1] == "10 of 10 shards done (100 %)"


def test_progress_goes_on_within_a_shard_and_while_waiting(
    make: Make, records: Records, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anyrecord._elastic_progress.SECONDS", 0.001)
    found = ""
    with elastic(records, make(shard_records=100), progress=True) as loop:
        next(loop)
        while found.count("0 of 1 shards done (0 %), 1 doing") < 3:
            found += capsys.readouterr().err
    assert capsys.readouterr().err.endswith("0 of 1 shards done (0 %), 0 doing, 1 waiting\n")


def test_progress_does_not_hide_errors(make: Make, records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = make()

    def status() -> Any:
        raise ConnectionError("the store is gone")

    monkeypatch.setattr(queue, "status", status)
    loop = elastic(records, queue, progress=True)
    next(loop)
    with pytest.raises(KeyError, match="ours"), loop:
        raise KeyError("ours")


def written_to(leader: int) -> str:
    """Everything that was written to a terminal whose other side is closed; one read may give only a part of it."""
    found = b""
    with contextlib.suppress(OSError):  # EIO says that the other side is closed
        while True:
            found += os.read(leader, 1000)
    return found.decode()


def test_progress_is_one_line_of_a_terminal(make: Make, records: Records) -> None:
    def child() -> str:
        leader, follower = os.openpty()
        termios.tcsetwinsize(follower, (24, 40))
        with os.fdopen(follower, "w") as terminal:
            sys.stderr = terminal
            _elastic_progress._print("10 of 20 shards done" + " and more" * 10, is_last=False)
            _elastic_progress._print("20 of 20 shards done", is_last=True)
        return written_to(leader)

    before, first, last = forked(child).split("\r\x1b[K")
    assert before == ""
    assert (len(first), first[:20]) == (39, "10 of 20 shards done")
    assert last.strip() == "20 of 20 shards done"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.recordio", {"chunk_bytes": 300}),
        ("a.tfrecord", {"codec": "gzip"}),
        ("a.array_record", {"group_size": 7}),
        ("a.array_record", {}),
    ],
)
def test_every_format_is_read(name: str, options: dict[str, Any]) -> None:
    with anyrecord.create(name, **options) as out:
        out.write_many(EVERY)
    records = anyrecord.open(name)
    queue = ShardQueue(ShardPlan(records, seed=0, shard_records=9), MemoryStore())
    assert sorted(elastic(records, queue)) == EVERY


def test_remote_records_are_read() -> None:
    url = "memory:///shards/train.array_record"
    with anyrecord.create(url, group_size=7) as out:
        out.write_many(EVERY)
    records = anyrecord.open(url)
    plan = ShardPlan(records, seed=0, shard_bytes=300)
    assert len(plan) > 3
    assert sorted(elastic(records, ShardQueue(plan, MemoryStore()))) == EVERY


def test_wrong_arguments_are_refused(make: Make, records: Records) -> None:
    queue = make()
    with pytest.raises(ValueError, match="until='never' is not valid: it must be 'done', 'idle' or 'all_done'"):
        elastic(records, queue, until="never")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="vote= needs until='all_done'"):
        elastic(records, queue, vote=int)
    with pytest.raises(ValueError, match="the plan is about other records: it has 100, and these are 9"):
        elastic(records[:9], queue)
    with pytest.raises(TypeError, match="elastic takes a ShardQueue, not list"):
        elastic(records, [])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"elastic takes records from anyrecord\.open, not list"):
        elastic([b"a"], queue)  # type: ignore[call-overload]
