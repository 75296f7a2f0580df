"""Workers of a `ShardQueue` are killed and paused at random moments, on each store. Each shard is completed once.

    python -m checks shard_kills --store redis --number 1000

A schedule is a queue of some shards with short leases, and some real processes that work on it. Meanwhile processes
get SIGKILL, or SIGSTOP and later SIGCONT, often after their lease has expired. New processes take the places of killed
ones. The store in memory is served to them from the process that runs the check.

A process writes a line to a log after it has claimed a shard, and one after `complete` has returned or raised. In the
end the queue must be done, and it keeps the tokens of all leases that were completed, as there are few shards. So it is
known what was completed, also by a process that was killed before it could write that down:

- The completed tokens belong to all shards, each once.
- A lease whose `complete` returned is among them. One whose `complete` raised `LeaseLostError` is not.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import anyrecord
from anyrecord._shard_state import decode
from anyrecord._shard_store import as_store

from checks.child import LIMIT_SECONDS
from checks.figures import Figure
from checks.shard_servers import SERVERS, Server

__all__ = ["run"]

SCHEDULES = 1000
SHORT_SCHEDULES = 12
MOST_SHARDS = 12
MOST_WORKERS = 4
RECORDS_PER_SHARD = 2


def run(short: bool, store: str | None = None, number: int | None = None, seed: int = 17) -> list[Figure]:
    """Runs schedules on every store, or on one."""
    schedules = number or (SHORT_SCHEDULES if short else SCHEDULES)
    return [figure for each in ([store] if store else SERVERS) for figure in kill_workers(each, schedules, seed)]


def kill_workers(store: str, schedules: int, seed: int) -> list[Figure]:
    """Runs so many schedules on a store."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with SERVERS[store](folder) as server:
            tried = run_schedules(server, folder, schedules, seed)
    return [
        Figure(f"schedules on {store}", tried.schedules, tried.wrong, schedules),
        Figure(f"shards on {store}, each completed exactly once", tried.shards, tried.uneven),
        Figure(f"workers killed on {store}", tried.kills, [], schedules // 4),
        Figure(f"workers paused on {store}", tried.pauses, [], schedules // 4),
        Figure(f"late workers on {store} that were refused", tried.refused, tried.late, schedules // 20),
    ]


@dataclass
class Tried:
    """What was tried on one store, and what went wrong."""

    schedules: int = 0
    shards: int = 0
    kills: int = 0
    pauses: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    uneven: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Job:
    """What a worker gets to do: one schedule. An empty name tells it to end."""

    name: str
    shards: int
    lease_seconds: float
    seed: int
    log: str


@dataclass
class Worker:
    """A process that works on one schedule after the other."""

    process: Any
    pipe: Connection
    paused_until: float | None = None

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)


class Team:
    """The worker processes. They are forked from a process that has imported everything."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._context: Any = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__, *server.preload])
        self._kind = next(name for name, kind in SERVERS.items() if isinstance(server, kind))
        self._address, self._folder = server.address, folder
        self.idle: list[Worker] = []

    def hire(self, job: Job) -> Worker:
        if self.idle:
            worker = self.idle.pop()
        else:
            here, there = self._context.Pipe()
            process = self._context.Process(target=work, args=(self._kind, self._address, str(self._folder), there))
            process.start()
            there.close()
            worker = Worker(process, here)
        worker.pipe.send(job)
        return worker

    def bury(self, worker: Worker) -> None:
        worker.signal(signal.SIGKILL)
        worker.process.join()
        worker.pipe.close()

    def dismiss(self) -> None:
        for worker in self.idle:
            self.bury(worker)
        self.idle.clear()
        # Processes of the next store need other modules, and the environment of then.
        multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]


def plan_of(folder: Path, shards: int) -> anyrecord.ShardPlan:
    """A plan of so many shards, out of one small file."""
    path = folder / "records.ffr"
    if not path.exists():
        with anyrecord.create(path) as out:
            out.write_many(b"%06d" % i for i in range(MOST_SHARDS * RECORDS_PER_SHARD))
    records = anyrecord.open(path)[: shards * RECORDS_PER_SHARD]
    return anyrecord.ShardPlan(records, seed=1, shard_records=RECORDS_PER_SHARD)


def run_schedules(server: Server, folder: Path, schedules: int, seed: int) -> Tried:
    """Runs schedules one after the other."""
    plan_of(folder, 1)
    team, tried, chance = Team(server, folder), Tried(), random.Random(seed)
    store = as_store(server.connect(server.address))
    try:
        for number in range(schedules):
            name = f"schedule{seed}.{number}"
            job = Job(name, chance.randint(3, MOST_SHARDS), chance.uniform(0.04, 0.12), 0, str(folder / name))
            if not run_one(team, job, chance, tried):
                return tried
            judge(store, folder, job, tried)
            os.unlink(job.log)
            tried.schedules += 1
    finally:
        team.dismiss()
    return tried


def run_one(team: Team, job: Job, chance: random.Random, tried: Tried) -> bool:
    """Runs a schedule until all of its workers are done. Returns False if they hang."""

    def hire() -> Worker:
        return team.hire(Job(job.name, job.shards, job.lease_seconds, chance.getrandbits(32), job.log))

    Path(job.log).touch()
    working = [hire() for _ in range(chance.randint(2, MOST_WORKERS))]
    # Most schedules take about as long as a lease.
    events = [chance.expovariate(1 / (0.2 * job.lease_seconds)) for _ in range(chance.randint(1, 4))]
    began = time.monotonic()
    next_event = began + events[0]
    while working:
        now = time.monotonic()
        if now - began > LIMIT_SECONDS:
            tried.wrong.append(f"{job.name}: {len(working)} workers did not end in {LIMIT_SECONDS:.0f} seconds")
            for worker in working:
                team.bury(worker)
            return False
        for worker in working:
            if worker.paused_until is not None and worker.paused_until <= now:
                worker.signal(signal.SIGCONT)
                worker.paused_until = None
        if events and now >= next_event:
            events.pop(0)
            next_event = now + events[0] if events else 0.0
            chosen = chance.choice(working)
            if chance.random() < 0.5:
                tried.kills += 1
                working.remove(chosen)
                team.bury(chosen)
                if not working or chance.random() < 0.5:
                    working.append(hire())
            elif chosen.paused_until is None:
                tried.pauses += 1
                chosen.signal(signal.SIGSTOP)
                chosen.paused_until = now + job.lease_seconds * chance.uniform(0.2, 3.0)
        for pipe in wait([worker.pipe for worker in working], timeout=0.002):
            (worker,) = [worker for worker in working if worker.pipe is pipe]
            try:
                told = worker.pipe.recv()
            except EOFError:
                told = f"a worker ended with {worker.process.exitcode}"
            if told is None and worker.paused_until is not None:  # paused after its answer
                worker.signal(signal.SIGCONT)
                worker.paused_until = None
            working.remove(worker)
            if told is None:
                team.idle.append(worker)
            else:
                tried.wrong.append(f"{job.name}: {told}")
                team.bury(worker)
                if not working:
                    return False
    return True


def judge(store: Any, folder: Path, job: Job, tried: Tried) -> None:
    """Compares the log of all workers with the state of the queue in the store."""
    plan = plan_of(folder, job.shards)
    value = store.get(f"{job.name}/0")
    state = decode(value, 0, len(plan)) if value else None
    if state is None or not state.is_over(len(plan)):
        tried.uneven.append(f"{job.name}: all workers ended, but the queue is not done: {value!r}")
        return
    lines = [line.split() for line in Path(job.log).read_text().splitlines()]
    claimed = {int(token): int(shard) for what, shard, token in lines if what == "claimed"}
    completed = Counter(claimed.get(token) for token in state.recent)
    if completed != Counter(range(len(plan))):
        tried.uneven.append(f"{job.name}: completed {dict(completed)} of {len(plan)} shards")
    for what, shard, token in lines:
        if what == "completed" and int(token) not in state.recent:
            tried.uneven.append(f"{job.name}: complete of shard {shard} returned, but the queue does not know of it")
        if what == "refused":
            tried.refused += 1
            if int(token) in state.recent:
                tried.late.append(f"{job.name}: complete of shard {shard} raised, but it was done")
    told = Counter(shard for what, shard, _ in lines if what == "completed")
    tried.uneven += [f"{job.name}: shard {shard} was completed {n} times" for shard, n in told.items() if n > 1]
    tried.shards += len(plan)


def work(kind: str, address: str, folder: str, pipe: Connection) -> None:
    """A worker process. It works on the schedules that it is told, and answers None, or what went wrong."""
    store = as_store(SERVERS[kind].connect(address))
    while True:
        try:
            job: Job = pipe.recv()
        except EOFError:
            return
        try:
            work_on(store, job, plan_of(Path(folder), job.shards))
            pipe.send(None)
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")


def work_on(store: Any, job: Job, plan: anyrecord.ShardPlan) -> None:
    """Claims shards until all are done. The leases are so short that a slow machine loses some without any signal."""
    chance = random.Random(job.seed)
    log = os.open(job.log, os.O_WRONLY | os.O_APPEND)

    def tell(what: str, lease: anyrecord.Lease) -> None:
        os.write(log, f"{what} {lease.shard.number} {lease.token}\n".encode())

    queue = anyrecord.ShardQueue(plan, store, lease_seconds=job.lease_seconds, name=job.name)
    try:
        while queue.wait():
            lease = queue.claim()
            if lease is None:
                continue
            tell("claimed", lease)
            try:
                for _ in range(chance.randint(0, 2)):
                    time.sleep(chance.random() * 0.3 * job.lease_seconds)
                    lease.renew()
                time.sleep(chance.random() * 0.3 * job.lease_seconds)
                if chance.random() < 0.1:
                    lease.release()
                    continue
            except anyrecord.LeaseLostError:
                pass  # it tries all the same
            try:
                lease.complete()
            except anyrecord.LeaseLostError:
                tell("refused", lease)
            else:
                tell("completed", lease)
    finally:
        os.close(log)
