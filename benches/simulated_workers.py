"""Many workers of one `ShardQueue` in simulated time: the real code of the queue, and a clock that jumps.

Each worker is a thread, and only one runs at a time. A worker sleeps until a moment of the simulated time, and the one
whose moment comes next goes on. A request to the store takes time, so requests of other workers come between the two
requests of a change, and conflicts happen as they do in a real job.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyrecord

__all__ = ["CountingStore", "Job", "Simulation", "simulate"]

RENEWALS_PER_LEASE = 3
"""As often as `anyrecord.elastic` renews a lease."""
STACK_BYTES = 256 << 10


class Simulation:
    """The simulated time, and the threads that wait for their moments in it."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.chance = random.Random(seed)
        self._waiting: list[tuple[float, int, threading.Semaphore]] = []
        self._entries = 0
        self._is_over = threading.Event()
        self.errors: list[BaseException] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """The calling worker goes on after so many simulated seconds. Others run meanwhile."""
        mine = threading.Semaphore(0)
        self._enter(self.now + seconds, mine)
        self._wake_next()
        mine.acquire()

    def run(self, workers: list[Callable[[], None]], apart_seconds: float) -> None:
        """Runs all workers to their ends. They start one after the other, within so many seconds."""
        before = threading.stack_size(STACK_BYTES)
        threads = []
        for work in workers:
            mine = threading.Semaphore(0)
            self._enter(self.chance.random() * apart_seconds, mine)
            threads.append(threading.Thread(target=self._run_one, args=(work, mine), daemon=True))
            threads[-1].start()
        threading.stack_size(before)
        self._wake_next()
        self._is_over.wait()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _enter(self, moment: float, semaphore: threading.Semaphore) -> None:
        self._entries += 1
        heapq.heappush(self._waiting, (moment, self._entries, semaphore))

    def _run_one(self, work: Callable[[], None], mine: threading.Semaphore) -> None:
        mine.acquire()
        try:
            work()
        except BaseException as error:
            self.errors.append(error)
        self._wake_next()

    def _wake_next(self) -> None:
        if not self._waiting:
            self._is_over.set()
            return
        self.now, _, semaphore = heapq.heappop(self._waiting)
        semaphore.release()


@dataclass
class CountingStore:
    """A store in memory whose requests take simulated time. It counts them."""

    simulation: Simulation
    request_seconds: float
    requests: Counter[str] = field(default_factory=Counter)
    """By what was asked and why."""
    conflicts: Counter[str] = field(default_factory=Counter)
    """Values that another worker had changed meanwhile, by why they should be changed."""
    sent_bytes: int = 0
    received_bytes: int = 0
    largest_value: int = 0
    per_second: Counter[int] = field(default_factory=Counter)
    """Requests in each second of the job."""
    why: dict[int, str] = field(default_factory=dict)
    """What each worker does now, by its thread."""

    def __post_init__(self) -> None:
        self._store = anyrecord.MemoryStore()

    def get(self, key: str) -> bytes | None:
        self._count("get")
        self.simulation.sleep(self.request_seconds / 2)
        found = self._store.get(key)
        self.simulation.sleep(self.request_seconds / 2)
        self.sent_bytes += len(key)
        self.received_bytes += len(found or b"")
        return found

    def compare_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        why = self._count("compare_set")
        self.simulation.sleep(self.request_seconds / 2)
        is_set = self._store.compare_set(key, expected, value)
        self.simulation.sleep(self.request_seconds / 2)
        self.sent_bytes += len(key) + len(expected or b"") + len(value)
        self.largest_value = max(self.largest_value, len(value))
        self.conflicts[why] += not is_set
        return is_set

    def _count(self, method: str) -> str:
        why = self.why.get(threading.get_ident(), "start")
        self.requests[f"{method} {why}"] += 1
        self.per_second[int(self.simulation.now)] += 1
        return why


@dataclass(frozen=True)
class Job:
    """What is simulated."""

    workers: int = 1000
    shard_seconds: float = 60.0
    """How long a worker takes for a shard, on average: from half to one and a half of it."""
    lease_seconds: float = 60.0
    request_seconds: float = 0.001
    start_seconds: float = 10.0
    """The workers start within so many seconds."""


class SimulatedQueue(anyrecord.ShardQueue):
    """The real queue. Only where it would sleep, simulated time passes."""

    def __init__(self, plan: anyrecord.ShardPlan, store: CountingStore, job: Job, worker: str) -> None:
        self._simulation = store.simulation
        self.watched_most: dict[Any, Any] = {}
        """The most leases of others that it has watched at a time, and since when each is as it is."""
        clock = store.simulation.clock
        super().__init__(plan, store, lease_seconds=job.lease_seconds, worker=worker, clock=clock)

    def _pause(self) -> None:
        self.watched_most = max(self.watched_most, self._parts._seen, key=len).copy()
        self._simulation.sleep(self._poll_seconds() * (0.5 + self._simulation.chance.random() / 2))


def simulate(plan: anyrecord.ShardPlan, job: Job, seed: int = 7) -> tuple[CountingStore, dict[str, Any]]:
    """Runs the job to its end. Returns the store with its counts, and what else was found."""
    simulation = Simulation(seed)
    store = CountingStore(simulation, job.request_seconds)
    done: list[int] = []
    last_claims: list[float] = []
    queues: list[SimulatedQueue] = []

    def work(number: int) -> None:
        me = threading.get_ident()
        store.why[me] = "start"
        queue = SimulatedQueue(plan, store, job, f"node{number // 8:03d}.example:{4000 + number % 8}")
        queues.append(queue)
        while True:
            store.why[me] = "claim"
            lease = queue.claim()
            if lease is None:
                store.why[me] = "wait"
                if not queue.wait():
                    return
                continue
            last_claims.append(simulation.now)
            left = job.shard_seconds * (0.5 + simulation.chance.random())
            while left > job.lease_seconds / RENEWALS_PER_LEASE:
                simulation.sleep(job.lease_seconds / RENEWALS_PER_LEASE)
                left -= job.lease_seconds / RENEWALS_PER_LEASE
                store.why[me] = "renew"
                lease.renew()
            simulation.sleep(left)
            store.why[me] = "complete"
            lease.complete()
            done.append(lease.shard.number)

    simulation.run([partial(work, number) for number in range(job.workers)], job.start_seconds)
    if sorted(done) != list(range(len(plan))):
        raise AssertionError(f"{len(done)} shards were completed, {len(set(done))} different ones, of {len(plan)}")
    return store, {"seconds": simulation.now, "last_claim": max(last_claims), "queues": queues}
