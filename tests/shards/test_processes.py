"""A job of processes that are killed, with its store, and goes on from a saved state with more and with fewer."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ShardPlan, ShardQueue
from children import LIMIT_SECONDS

from shards.hosting import Host, Remote

RECORDS = 600
LEASE_SECONDS = 0.5


def queue_on(store: Remote) -> ShardQueue:
    plan = ShardPlan(anyrecord.open("job.ffr"), seed=1, shard_records=10)
    return ShardQueue(plan, store, lease_seconds=LEASE_SECONDS, name="job")


def work(store: Remote, log: str, state: dict[str, Any] | None) -> None:
    """Writes down each record before it asks for the next one."""
    queue = queue_on(store)
    if state is not None:
        queue.load_state_dict(state)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for record in anyrecord.elastic(queue.plan.records, queue):
        os.write(out, record + b"\n")


def lines(log: str) -> list[bytes]:
    return Path(log).read_bytes().split() if Path(log).exists() else []


@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 3)])
def test_save_kill_everything_and_restore(before: int, after: int) -> None:
    with anyrecord.create("job.ffr") as out:
        out.write_many(b"%06d" % i for i in range(RECORDS))
    context = multiprocessing.get_context("spawn")
    state = None
    for life, (workers, stop_after) in enumerate([(before, 250), (after, RECORDS)]):
        with Host(ctx=context) as host:
            store = Remote(host.store())  # type: ignore[attr-defined]
            log = f"log{life}"
            processes = [context.Process(target=work, args=(store, log, state)) for _ in range(workers)]
            for process in processes:
                process.start()
            if life == 0:
                wait_until(lambda log=log, most=stop_after: len(lines(log)) >= most)
                state = queue_on(store).state_dict()
                for process in processes:
                    process.kill()
            for process in processes:
                process.join(LIMIT_SECONDS)
                assert process.exitcode == (-9 if life == 0 else 0)
                process.close()
    plan = ShardPlan(anyrecord.open("job.ffr"), seed=1, shard_records=10)
    assert state is not None
    (saved,) = state["partitions"]
    done = {number for number in range(saved["next"]) if number not in saved["waiting"]}
    assert len(done) >= 20
    first, second = Counter(lines("log0")), Counter(lines("log1"))
    for shard in plan:
        names = [b"%06d" % record for record in range(shard.start, shard.stop)]
        if shard.number in done:
            assert all(first[name] == 1 and second[name] == 0 for name in names)
        else:
            assert all(second[name] == 1 for name in names)


def wait_until(is_so: Any) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        assert time.monotonic() < end, "the workers hang"
        time.sleep(0.002)
