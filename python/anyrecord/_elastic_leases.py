"""Keeps the leases of a loop over shards: renews them in a thread, and gives them back at the end.

Nothing here refers to the loop itself, so a loop that is dropped is noticed, and its thread ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from anyrecord._shard_lease import Lease
from anyrecord._shard_queue import ShardQueue
from anyrecord.errors import LeaseLostError

__all__ = ["KeptLeases"]

_RENEWALS_PER_LEASE = 3
_PATIENCE_SECONDS = 10.0
"""How long the end of a loop waits for its threads. They end by themselves, but a store may be slow."""


_forks = 0
"""How often this process was forked, counted in the child. It is cheaper to look at than the number of the process."""


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class KeptLeases:
    """The leases that one loop holds."""

    def __init__(self, queue: ShardQueue) -> None:
        self.queue = queue
        self._forks = _forks
        self._lock = threading.Lock()
        self._leases: list[Lease] = []
        self._is_stopped = False
        # `stop` may run anywhere, also in the thread that waits here. A SimpleQueue allows that, an Event does not.
        self._stops: SimpleQueue[None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._works: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.error: BaseException | None = None
        """What the thread could not cope with."""

    @property
    def is_of_another_process(self) -> bool:
        """Whether the process was forked since. The thread and the leases belong to the parent."""
        return self._forks != _forks

    def claim(self) -> Lease | None:
        """Claims a shard and keeps it. None if there is none now, or after `stop`."""
        lease = None if self._is_stopped else self.queue.claim()
        if lease is None:
            return None
        with self._lock:
            if not self._is_stopped:
                self._leases.append(lease)
                if len(self._threads) == 0:
                    self._threads.append(_started(self._run, "renew"))
                return lease
        lease.release()
        return None

    def in_a_thread(self, work: Callable[[], None]) -> None:
        """Runs something in another thread, which `stop` waits for: the renewals must not wait for it."""
        with self._lock:
            if not self._is_stopped and len(self._threads) == 1:
                self._threads.append(_started(self._work, "claim"))
        self._works.put(work)

    def _work(self) -> None:
        while (work := self._works.get()) is not None:
            work()

    def complete(self, lease: Lease) -> bool:
        """Completes a shard. Returns False if another worker has it."""
        try:
            lease.complete()
        except LeaseLostError:
            self.drop(lease)
            return False
        self.drop(lease)
        return True

    def drop(self, lease: Lease) -> None:
        """Does not renew a lease any more."""
        with self._lock:
            self._leases = [each for each in self._leases if each is not lease]

    def _run(self) -> None:
        while not self._is_stopped_within(self.queue.lease_seconds / _RENEWALS_PER_LEASE):
            for lease in self._kept():
                try:
                    lease.renew()
                except LeaseLostError:  # the lease says so; whoever reads the shard looks there
                    self.drop(lease)
                except OSError:  # the store may come back before the lease has expired; `complete` will tell
                    continue
                except Exception as error:
                    self.error = error
                    return
        for lease in self._kept():
            try:
                lease.release()
            except Exception:  # it will expire
                continue

    def _is_stopped_within(self, seconds: float) -> bool:
        try:
            self._stops.get(timeout=min(seconds, threading.TIMEOUT_MAX))
        except Empty:
            return False
        return True

    def _kept(self) -> list[Lease]:
        with self._lock:
            return list(self._leases)

    def stop(self) -> None:
        """Gives all shards back and ends the threads. The thread gives back: this may run amid a call of the store."""
        if self.is_of_another_process:
            return
        self._is_stopped = True
        self._stops.put(None)
        self._works.put(None)
        for thread in list(self._threads):
            if thread is not threading.current_thread():  # a loop in a cycle is collected by any thread
                thread.join(_PATIENCE_SECONDS)


def _started(work: Callable[[], None], name: str) -> threading.Thread:
    # A daemon: the end of the process must not wait for a thread that waits for the end of the loop.
    thread = threading.Thread(target=work, name=f"anyrecord-{name}", daemon=True)
    thread.start()
    return thread
