"""`ShardQueue`: hands the shards of a plan out to workers. The list of shards lives in a store that the job has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, SupportsFloat

from anyrecord import _shard_state
from anyrecord._shard_lease import Lease
from anyrecord._shard_partitions import Changed, Partitions
from anyrecord._shard_plan import ShardPlan
from anyrecord._shard_saved import restore, saved
from anyrecord._shard_state import Held, Partition
from anyrecord._shard_status import HeldShard, ShardStatus
from anyrecord._shard_store import as_store
from anyrecord.errors import LeaseLostError

__all__ = ["ShardQueue"]

_POLLS_PER_LEASE = 8
_LONGEST_POLL_SECONDS = 5.0


class ShardQueue:
    """Hands shards out to workers that come and go. No shard is lost, and each is completed exactly once.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(100))
    >>> plan = anyrecord.ShardPlan(anyrecord.open("doc.ffr"), seed=0, epoch=0, shard_records=25)
    >>> store = anyrecord.MemoryStore()             # between processes: a torch TCPStore, Redis, or a Ray actor
    >>> queue = anyrecord.ShardQueue(plan, store, lease_seconds=30)
    >>> lease = queue.claim()
    >>> lease.shard
    Shard(number=0, start=29, stop=53, bytes=48)
    >>> lease.renew()                               # while it works, before 30 seconds have passed
    >>> lease.complete()                            # after its result is safe
    >>> queue.status().done
    1

    - `store`: a torch `TCPStore` that outlives the workers, a Redis client, a Ray actor, a `MemoryStore` for the
      threads of one process, or an object with the two methods of `ShardStore`.
    - `lease_seconds`: a worker that does not renew its lease for so long is taken for dead, and its shard is given to
      another one. `elastic` renews three times in this time, in a thread, as long as the process lives.
    - `name`: the queue in the store. All workers must use the same. The default is made of the plan's fingerprint, so
      each epoch is a queue of its own. In a store that outlives the job, pass a name with the job and the epoch: a
      queue that is done stays done.
    - `worker`: a name for `status`. The default is the host and the process.
    - `clock`: seconds that only ever grow. Clocks of different hosts are never compared.

    A queue can be used from several threads, and after a fork. A pickled queue is the same queue in another process.
    """

    def __init__(
        self,
        plan: ShardPlan,
        store: Any,
        *,
        lease_seconds: SupportsFloat = 60.0,
        name: str | None = None,
        worker: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(plan, ShardPlan):
            raise TypeError(f"a ShardQueue takes a ShardPlan, not {type(plan).__name__}")
        for key, text in (("name", name), ("worker", worker)):
            if text is not None and (not isinstance(text, str) or not text):
                raise TypeError(f"{key}= takes a text that is not empty, not {text!r}")
        self._plan = plan
        self._lease_seconds = _positive("lease_seconds", lease_seconds)
        self._name = name or f"anyrecord/shards/{plan.fingerprint}"
        self._worker = worker
        self._clock = clock
        self._parts = Partitions(as_store(store), self._name, len(plan), clock)
        self._parts.check_header({"plan": plan.fingerprint, "shards": len(plan), "lease_seconds": self._lease_seconds})

    @property
    def plan(self) -> ShardPlan:
        """The plan whose shards are handed out."""
        return self._plan

    @property
    def name(self) -> str:
        """The name of the queue in the store."""
        return self._name

    @property
    def lease_seconds(self) -> float:
        """After how many seconds without a renewal a shard is given to another worker."""
        return self._lease_seconds

    @property
    def worker(self) -> str:
        """The name of this worker in the status."""
        return self._worker or f"{_host()}:{os.getpid()}"

    def claim(self) -> Lease | None:
        """Returns a lease of the next shard, or None if there is none to claim now. It does not wait.

        None does not mean that all is done: other workers may hold shards, which come back if they die. `wait` tells.
        """
        name = os.urandom(8).hex()
        for part in self._parts.unfinished():
            if held := self._claim_in(part, name):
                self._parts.begin_at(part)
                lease = Lease(self, self._plan[held.shard], held.token, self._clock())
                self._parts.ours[held.shard, held.token] = lease
                return lease
        return None

    def _claim_in(self, part: int, name: str) -> Held | None:
        """Claims a shard of a partition."""
        _, stop = self._parts.bounds(part)
        worker = self.worker

        def decide(state: Partition, asked_at: float) -> Partition | None:
            return _shard_state.claim(
                state,
                stop,
                name,
                worker,
                is_empty=self._is_empty,
                is_expired=lambda held: self._is_expired(held, asked_at),
            )

        while True:
            changed = self._parts.change(part, decide)
            held = changed.state.find_claim(name)
            if held is not None or not changed.is_changed:
                return held

    def _is_expired(self, held: Held, asked_at: float) -> bool:
        # A lease of this queue that somebody still has is not taken away, even if it was not renewed in time.
        is_ours = (held.shard, held.token) in self._parts.ours
        return not is_ours and self._parts.quiet_seconds(held, asked_at) >= self._lease_seconds

    def _is_empty(self, shard: int) -> bool:
        return not len(self._plan[shard])

    def _renew(self, lease: Lease) -> None:
        shard, token = lease.shard.number, lease.token
        age = max(0, int(1000 * (self._clock() - lease._claimed_at)))
        changed = self._change(lease, lambda state, _: _shard_state.renew(state, shard, token, age))
        if not changed.state.is_held(shard, token):
            raise self._lost(lease, changed.state)

    def _complete(self, lease: Lease) -> None:
        shard, token = lease.shard.number, lease.token
        changed = self._change(lease, lambda state, _: _shard_state.complete(state, shard, token))
        if not changed.state.is_completed(token):
            raise self._lost(lease, changed.state)

    def _release(self, lease: Lease) -> None:
        shard, token = lease.shard.number, lease.token
        self._change(lease, lambda state, _: _shard_state.release(state, shard, token))

    def _change(self, lease: Lease, decide: Callable[[Partition, float], Partition | None]) -> Changed:
        return self._parts.change(self._parts.part_of(lease.shard.number), decide)

    def _lost(self, lease: Lease, state: Partition) -> LeaseLostError:
        lease._is_lost = True
        shard = lease.shard
        if held := state.find(shard.number):
            now = f"{held.holder} has it now, with token {held.token}"
        elif shard.number in state.waiting:
            now = "it waits for a worker"
        elif state.is_completed(lease.token) is None:
            now = "it is done, by this worker or by another one; too many others were completed since then to know"
        else:
            now = "another worker has completed it"
        return LeaseLostError(
            f"the lease of shard {shard.number} (records {shard.start} to {shard.stop}) is lost: {now}; "
            f"ours had token {lease.token} and was not renewed within {self._lease_seconds:g} seconds",
            record=shard.start,
            expected=f"token {lease.token}",
            found=now,
        )

    def is_done(self) -> bool:
        """Returns whether all shards are done. Once they are, that never changes."""
        for part in self._parts.unfinished():
            self._parts.look(part)
        return self._is_over()

    def wait(self) -> bool:
        """Waits until there is a shard to claim, and returns True. Returns False when all shards are done.

        Shards whose leases have expired are given back, so that any worker can claim them, also one that has just
        started.

        A worker that leaves earlier leaves the shards of workers that die later to nobody. `anyrecord.elastic` waits by
        itself. With a loader that must not wait: `while queue.wait():` go through the loader once.
        """
        while (found := self._is_anything_claimable()) is False:
            self._pause()
        return bool(found)

    def _is_anything_claimable(self) -> bool | None:
        """Whether there is a shard to claim now. None if all are done."""
        if any(self._is_claimable(part) for part in self._parts.unfinished()):
            return True
        return None if self._is_over() else False

    def _is_claimable(self, part: int) -> bool:
        """Whether there is a shard to claim in a partition. Gives back those whose leases have expired.

        So any worker can claim them at once, also a process that has just started and has seen no lease expire.
        """
        _, stop = self._parts.bounds(part)

        def decide(state: Partition, asked_at: float) -> Partition | None:
            return _shard_state.expire(state, lambda held: self._is_expired(held, asked_at))

        state = self._parts.change(part, decide).state
        return bool(state.waiting) or state.next < stop

    def _pause(self) -> None:
        """Waits before the store is asked again. Not for the same time in all workers."""
        time.sleep(self._poll_seconds() * (0.5 + os.urandom(1)[0] / 512))

    def _poll_seconds(self) -> float:
        return min(self._lease_seconds / _POLLS_PER_LEASE, _LONGEST_POLL_SECONDS)

    def _is_over(self) -> bool:
        """Whether this process knows already that all shards are done."""
        return self._parts.is_over()

    def status(self) -> ShardStatus:
        """Returns how many shards are done, held and waiting, and who holds what for how long.

        It asks the store once for each partition that is not done: at most 64 times.
        """
        waiting, found = 0, []
        for part in self._parts.unfinished():
            _, stop = self._parts.bounds(part)
            state, asked_at = self._parts.look(part)
            waiting += stop - state.next + len(state.waiting)
            for held in state.held:
                quiet = self._parts.quiet_seconds(held, asked_at)
                found.append(HeldShard(held.shard, held.holder, held.token, held.age / 1000 + quiet, quiet))
        found.sort(key=lambda held: (-held.seconds, held.shard))
        shards = len(self._plan)
        return ShardStatus(shards, shards - waiting - len(found), len(found), waiting, tuple(found))

    def state_dict(self) -> dict[str, Any]:
        """Returns which shards are done, for a checkpoint: a few kilobytes of numbers, however many shards there are.

        Shards that workers hold now count as waiting.
        """
        states = [self._parts.look(part)[0] for part in range(self._parts.count)]
        return saved(self._plan.fingerprint, len(self._plan), states)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Puts a state into a store that has none yet. The number of workers may be another one than before.

        All workers can load the same state: the first one puts it there. If the store has progress of its own, that is
        a ValueError; a store that has outlived the workers needs no state.
        """
        restore(self._parts, self._plan.fingerprint, state)

    def __reduce__(self) -> tuple[Any, ...]:
        how = self._lease_seconds, self._name, self._worker, self._clock
        return _restored, (self._plan, self._parts.store, *how)

    def __repr__(self) -> str:
        return f"<anyrecord.ShardQueue: {len(self._plan)} shards, name {self._name!r}>"


def _restored(
    plan: ShardPlan, store: Any, lease_seconds: float, name: str, worker: str | None, clock: Callable[[], float]
) -> ShardQueue:
    return ShardQueue(plan, store, lease_seconds=lease_seconds, name=name, worker=worker, clock=clock)


def _positive(name: str, value: SupportsFloat) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}= takes a number of seconds, not {value!r}") from None
    if not 0 < number < float("inf"):
        raise ValueError(f"{name}={value!r} is not valid: it must be a positive number of seconds")
    return number


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "host")
