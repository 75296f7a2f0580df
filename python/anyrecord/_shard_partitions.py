"""The values of a queue in its store: reads them, changes them, and watches whose lease has not been renewed.

Every change is one `compare_set` of one value. If the answer to it is lost, the value is read again, and the change is
decided again: whoever decides recognises in the state what was done before.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from anyrecord._shard_lease import Lease
from anyrecord._shard_state import Held, Partition, decode, encode
from anyrecord._shard_store import ShardStore

__all__ = ["Changed", "Partitions"]

_MOST_PARTITIONS = 64
_SHARDS_PER_PARTITION = 64
_ATTEMPTS = 8
"""How often a store that cannot be reached is asked. With the pauses, a server has six seconds to restart."""
_FIRST_RETRY_SECONDS = 0.05


class Changed(NamedTuple):
    """The state after a change, or the one that needed none."""

    state: Partition
    is_changed: bool


class _Seen(NamedTuple):
    """A lease as this process has first seen it."""

    token: int
    beat: int
    since: float


class Partitions:
    """The partitions of a queue. Their number depends on the number of shards only."""

    def __init__(self, store: ShardStore, name: str, shards: int, clock: Callable[[], float]) -> None:
        self.store = store
        self._name, self._shards, self._clock = name, shards, clock
        # Several, so that a thousand workers do not all change the same value.
        self.count = min(_MOST_PARTITIONS, -(-shards // _SHARDS_PER_PARTITION))
        self._lives: dict[int, str] = {}
        """What was in each partition at first: `Partition.life`."""
        self._begin_process()

    def _begin_process(self) -> None:
        self._lock = threading.RLock()
        self.ours: WeakValueDictionary[tuple[int, int], Lease] = WeakValueDictionary()
        """The leases of this process that somebody still has, by shard and token."""
        self._over: set[int] = set()
        self._seen: dict[int, _Seen] = {}
        # Workers begin at different partitions, and stay where they find something.
        self._first = int.from_bytes(os.urandom(4), "little") % max(1, self.count)
        self._process = os.getpid()  # last: another thread of a forked child must not take the old lock

    def _held_lock(self) -> Any:
        if self._process != os.getpid():  # a lock that another thread had during a fork is never released
            self._begin_process()
        return self._lock

    def bounds(self, part: int) -> tuple[int, int]:
        """The first shard of a partition, and the one after its last."""
        return self._shards * part // self.count, self._shards * (part + 1) // self.count

    def part_of(self, shard: int) -> int:
        """The partition of a shard."""
        part = shard * self.count // self._shards
        return part + (shard >= self.bounds(part)[1])

    def unfinished(self) -> Iterator[int]:
        """The partitions that are not known to be done. The one that the last shard came from is the first."""
        with self._held_lock():
            parts = [(self._first + step) % self.count for step in range(self.count)]
            return iter([part for part in parts if part not in self._over])

    def begin_at(self, part: int) -> None:
        """Makes a partition the first one of `unfinished`."""
        self._first = part

    def is_over(self) -> bool:
        """Whether all partitions are known to be done."""
        return len(self._over) == self.count

    def look(self, part: int) -> tuple[Partition, float]:
        """The state of a partition, and when the store was asked for it."""
        _, state, asked_at = self._read(part)
        return state, asked_at

    def change(self, part: int, decide: Callable[[Partition, float], Partition | None]) -> Changed:
        """Changes a partition to the state that `decide` returns, until nobody else has changed it meanwhile.

        `decide` gets the state, and when the store was asked for it. It returns None if there is nothing to change.
        """
        failures = 0
        while True:
            value, state, asked_at = self._read(part)
            new = decide(state, asked_at)
            if new is None:
                return Changed(state, False)
            if value is None:
                new = new._replace(life=os.urandom(8).hex())
            written = encode(new, os.urandom(8).hex())
            try:
                with self._held_lock():
                    is_set = self.store.compare_set(self._key(part), value, written)
            except OSError:
                # It may have been applied or not, or it may still be on its way.
                failures += 1
                if failures == _ATTEMPTS:
                    raise
                time.sleep(_FIRST_RETRY_SECONDS * 2 ** (failures - 1))
                continue
            if is_set:
                self._lives.setdefault(part, new.life)
                self._observe(part, new)
                return Changed(new, True)

    def put(self, part: int, state: Partition) -> Partition:
        """Puts a state where there is none yet. Returns the state that is there."""
        return self.change(part, lambda found, _: state if found == self._fresh(part) else None).state

    def _fresh(self, part: int) -> Partition:
        return Partition(self.bounds(part)[0])

    def _read(self, part: int) -> tuple[bytes | None, Partition, float]:
        asked_at = self._clock()
        value = self._get(self._key(part))
        state = self._fresh(part) if value is None else decode(value, *self.bounds(part))
        if value is not None:
            self._lives.setdefault(part, state.life)
        # The tokens of a queue that began anew may be those of old leases, so no old worker may go on with it.
        if self._lives.get(part, state.life) != state.life:
            raise RuntimeError(
                f"the store has lost the queue {self._name!r}: what was at {self._key(part)!r} is gone; "
                "start the workers again, with load_state_dict if you have a state; use a store that keeps what it has"
            )
        self._observe(part, state)
        return value, state, asked_at

    def _get(self, key: str) -> bytes | None:
        for attempt in range(_ATTEMPTS - 1):
            try:
                with self._held_lock():
                    return self.store.get(key)
            except OSError:
                time.sleep(_FIRST_RETRY_SECONDS * 2**attempt)
        with self._held_lock():
            return self.store.get(key)

    def _key(self, part: int) -> str:
        return f"{self._name}/{part}"

    def _observe(self, part: int, state: Partition) -> None:
        """Remembers since when each lease is as it is. The clock is read after the answer: rather too late."""
        begin, stop = self.bounds(part)
        with self._held_lock():
            if state.is_over(stop):
                self._over.add(part)
            now = self._clock()
            for shard in [shard for shard in self._seen if begin <= shard < stop and state.find(shard) is None]:
                del self._seen[shard]
            for held in state.held:
                seen = self._seen.get(held.shard)
                if seen is None or (seen.token, seen.beat) != (held.token, held.beat):
                    self._seen[held.shard] = _Seen(held.token, held.beat, now)

    def quiet_seconds(self, held: Held, asked_at: float) -> float:
        """For how long this process has seen no renewal of a lease that was there when the store was asked."""
        with self._held_lock():
            seen = self._seen.get(held.shard)
        if seen is None or (seen.token, seen.beat) != (held.token, held.beat):
            return 0.0
        return max(0.0, asked_at - seen.since)

    def check_header(self, header: dict[str, Any]) -> None:
        """Says in the store what this queue is, or compares with what the first worker has said."""
        key, failures = f"{self._name}/plan", 0
        ours = json.dumps(header, sort_keys=True).encode()
        while (value := self._get(key)) is None:
            try:
                with self._held_lock():
                    self.store.compare_set(key, None, ours)
            except OSError:
                failures += 1
                if failures == _ATTEMPTS:
                    raise
                time.sleep(_FIRST_RETRY_SECONDS * 2 ** (failures - 1))
        if value == ours:
            return
        try:
            theirs = dict(json.loads(value))
        except (ValueError, TypeError):
            raise ValueError(f"the store has a value that no ShardQueue wrote, at {key!r}: {value[:60]!r}") from None
        names = {"plan": "the plan's fingerprint", "shards": "the number of shards", "lease_seconds": "lease_seconds"}
        different = [
            f"{text} is {theirs.get(name)!r} there and {header[name]!r} here"
            for name, text in names.items()
            if theirs.get(name) != header[name]
        ]
        raise ValueError(
            f"the store has another queue named {self._name!r}: {', '.join(different)}; "
            "use the same data, seed, epoch, size of shards and lease_seconds in all workers, or pass another name="
        )
