"""`Lease`: a shard that this worker holds for a while."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

from anyrecord._shard_plan import Shard

if TYPE_CHECKING:
    from anyrecord._shard_queue import ShardQueue

__all__ = ["Lease"]


class Lease:
    """A shard that this worker holds. `ShardQueue.claim` returns one.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(6))
    >>> records = anyrecord.open("doc.ffr")
    >>> queue = anyrecord.ShardQueue(anyrecord.ShardPlan(records, shard_records=3), anyrecord.MemoryStore())
    >>> while lease := queue.claim():
    ...     with lease:                        # completes the shard at the end, and gives it back after an error
    ...         print(lease.shard.number, list(records[lease.shard.slice]))
    0 [b'0', b'1', b'2']
    1 [b'3', b'4', b'5']

    Renew a lease before `lease_seconds` have passed, as often as needed. `anyrecord.elastic` does all of this.
    """

    def __init__(self, queue: ShardQueue, shard: Shard, token: int, claimed_at: float) -> None:
        self._queue, self._shard, self._token = queue, shard, token
        self._claimed_at = claimed_at
        self._is_lost = False
        """Set by whoever finds out, for the thread that reads."""
        self._is_completed = False
        """Known for ever. The store remembers the last ones only."""

    @property
    def shard(self) -> Shard:
        """The shard."""
        return self._shard

    @property
    def token(self) -> int:
        """The fencing token: larger than all earlier ones of this shard. A store of yours can refuse smaller ones.

        After `load_state_dict` into a new store, tokens go on from the saved state: those given out since it was saved
        come again.
        """
        return self._token

    def renew(self) -> None:
        """Keeps the shard for another `lease_seconds`. Raises `LeaseLostError` if another worker has it."""
        self._queue._renew(self)

    def complete(self) -> None:
        """The shard is done. Raises `LeaseLostError` if another worker has it. A second call does nothing."""
        if not self._is_completed:
            self._queue._complete(self)
            self._is_completed = True

    def release(self) -> None:
        """Gives the shard back, for any worker to claim at once. Does nothing if this worker does not hold it."""
        self._queue._release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            self.complete()
        else:
            with suppress(OSError):  # without the store, the lease expires; the error of the block is the one to see
                self.release()

    def __repr__(self) -> str:
        shard = self._shard
        return f"<anyrecord.Lease: shard {shard.number}, records {shard.start} to {shard.stop}, token {self._token}>"
