"""`ShardStatus`: how far a queue is, and who holds what."""

from __future__ import annotations

from anyrecord._dataclasses import dataclass

__all__ = ["HeldShard", "ShardStatus"]


@dataclass(frozen=True, slots=True)
class HeldShard:
    """A shard that a worker processes now, or that nobody has taken from a dead worker yet."""

    shard: int
    """The number of the shard in the plan."""
    worker: str
    """The name of the worker."""
    token: int
    """The fencing token of the claim."""
    seconds: float
    """For how long the worker holds it. At least that long: the time before its last renewal is exact, and the time
    since then is what this process has seen."""
    quiet_seconds: float
    """For how long this process has seen no renewal. After `lease_seconds`, another worker takes the shard."""


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """How far a queue is. `print(queue.status())` prints one line.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(100))
    >>> plan = anyrecord.ShardPlan(anyrecord.open("doc.ffr"), shard_records=10)
    >>> queue = anyrecord.ShardQueue(plan, anyrecord.MemoryStore(), worker="w1")
    >>> queue.claim().complete()
    >>> lease = queue.claim()
    >>> print(queue.status())
    1 of 10 shards done (10 %), 1 doing, 8 waiting; longest: shard 1, 0 s by w1
    """

    shards: int
    """How many shards there are."""
    done: int
    """How many are done."""
    doing: int
    """How many workers hold now."""
    waiting: int
    """How many wait for a worker."""
    held: tuple[HeldShard, ...]
    """The shards that workers hold, the one that is held for longest first."""

    @property
    def is_done(self) -> bool:
        """Whether all shards are done."""
        return self.done == self.shards

    def line(self) -> str:
        """Returns the status as one line of text."""
        percent = 100 if self.is_done else 100 * self.done // self.shards
        text = f"{self.done:,} of {self.shards:,} shards done ({percent} %)"
        if self.is_done:
            return text
        text += f", {self.doing:,} doing, {self.waiting:,} waiting"
        if self.held:
            longest = self.held[0]
            text += f"; longest: shard {longest.shard}, {longest.seconds:.0f} s by {longest.worker}"
        return text

    def __str__(self) -> str:
        return self.line()
