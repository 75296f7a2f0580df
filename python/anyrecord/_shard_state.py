"""The state of some shards of a queue, and all that can happen to it, as pure functions.

The shards of a plan are divided into a few partitions of neighbouring shards. Each has one value in the store. Each
function here takes the state of a partition and returns the next one; the queue replaces the value with one
`compare_set`. So no shard can get lost between two writes. `checks/shards_model.py` runs these functions in every
order.

A shard is in one of four places:

    not handed out ──claim──► held ──complete──► done
                               ▲ │
                        claim  │ │ release, expire
                               │ ▼
                             waiting

Shards from `next` on are not handed out yet. A shard before `next` that is neither held nor waiting is done. So the
size of a value grows with the workers, not with the shards.

Each claim has a token, a number that grows with each claim in the partition. Only the claim with the newest token of a
shard can complete it: a worker that was stopped for too long cannot.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Held", "Partition", "decode", "encode"]

_VERSION = 1
_MOST_SKIPPED = 1000
"""How many empty shards are left out in one write."""
_MOST_RECENT = 64
"""How many completed tokens are remembered, for a worker that did not get the answer to its `complete`."""


class Held(NamedTuple):
    """A shard that a worker holds."""

    shard: int
    token: int
    beat: int
    """How often the lease was renewed."""
    claim: str
    """A random name of this claim. The worker recognises its claim by it, if it did not get the answer."""
    holder: str
    """The name of the worker."""
    age: int
    """For how long it was held at the last renewal, in milliseconds of the holder's clock."""


class Partition(NamedTuple):
    """The state of some neighbouring shards."""

    next: int
    """The first shard that was never handed out."""
    token: int = 0
    """The newest token."""
    held: tuple[Held, ...] = ()
    """The shards that workers hold, in the order of their tokens."""
    waiting: tuple[int, ...] = ()
    """Shards that were handed out and given back."""
    recent: tuple[int, ...] = ()
    """The tokens that were completed last."""
    origin: str = ""
    """What the state was restored from. Empty if it was not."""
    life: str = ""
    """A random text, made with the first value. Another one means that the store was lost and the queue began anew."""

    def find(self, shard: int) -> Held | None:
        """Who holds a shard."""
        return next((held for held in self.held if held.shard == shard), None)

    def find_claim(self, claim: str) -> Held | None:
        """The shard that was claimed under this name."""
        return next((held for held in self.held if held.claim == claim), None)

    def is_held(self, shard: int, token: int) -> bool:
        """Whether this token still holds the shard."""
        return any(held.shard == shard and held.token == token for held in self.held)

    def is_over(self, stop: int) -> bool:
        """Whether all shards before `stop` are done. That never changes again."""
        return self.next == stop and not self.held and not self.waiting

    def is_completed(self, token: int) -> bool | None:
        """Whether this token has completed its shard. None if that can be too long ago to be known."""
        if token in self.recent:
            return True
        return None if len(self.recent) == _MOST_RECENT else False


def claim(
    state: Partition,
    stop: int,
    name: str,
    holder: str,
    *,
    is_empty: Callable[[int], bool],
    is_expired: Callable[[Held], bool],
) -> Partition | None:
    """Claims a shard: one that was given back, or one whose lease has expired, or the next one.

    An expired one comes before the next one, so that the value does not grow with the number of workers that died.

    Returns None if there is none to claim, or if an earlier attempt of the same name has succeeded after all. It can
    also return a state without the claim, which has left out empty shards: then claim again.
    """
    if state.find_claim(name):
        return None
    if state.waiting:
        shard, *waiting = state.waiting
        return _held(state._replace(waiting=tuple(waiting)), shard, name, holder)
    for held in state.held:
        if is_expired(held):
            return _held(_without(state, held.shard), held.shard, name, holder)
    if state.next < stop:
        last = min(stop, state.next + _MOST_SKIPPED)
        shard = next((shard for shard in range(state.next, last) if not is_empty(shard)), last)
        # Empty shards before it are done thereby.
        return (
            state._replace(next=last) if shard == last else _held(state._replace(next=shard + 1), shard, name, holder)
        )
    return None


def renew(state: Partition, shard: int, token: int, age: int) -> Partition | None:
    """Shows that the worker lives. None if the token does not hold the shard."""
    if not state.is_held(shard, token):
        return None
    renewed = (each._replace(beat=each.beat + 1, age=age) if each.shard == shard else each for each in state.held)
    return state._replace(held=tuple(renewed))


def complete(state: Partition, shard: int, token: int) -> Partition | None:
    """The shard is done. None if the token does not hold it."""
    if not state.is_held(shard, token):
        return None
    return _without(state, shard)._replace(recent=(*state.recent, token)[-_MOST_RECENT:])


def release(state: Partition, shard: int, token: int) -> Partition | None:
    """Gives the shard back. None if the token does not hold it."""
    if not state.is_held(shard, token):
        return None
    return _without(state, shard)._replace(waiting=tuple(sorted((*state.waiting, shard))))


def expire(state: Partition, is_expired: Callable[[Held], bool]) -> Partition | None:
    """Gives back the shards of leases that have expired. None if there is none."""
    free = state
    for held in state.held:
        if is_expired(held):
            free = release(free, held.shard, held.token) or free
    return None if free is state else free


def restored(state: Partition, origin: str) -> Partition:
    """The state without workers: what they held waits. Tokens go on, so that a new one is newer than all before."""
    waiting = sorted({*state.waiting, *(held.shard for held in state.held)})
    return Partition(state.next, state.token, waiting=tuple(waiting), origin=origin)


def _held(state: Partition, shard: int, name: str, holder: str) -> Partition:
    token = state.token + 1
    return state._replace(token=token, held=(*state.held, Held(shard, token, 0, name, holder, 0)))


def _without(state: Partition, shard: int) -> Partition:
    return state._replace(held=tuple(held for held in state.held if held.shard != shard))


def encode(state: Partition, nonce: str) -> bytes:
    """The state as a value for the store. `nonce` is another text each time, so that no value is written twice."""
    return json.dumps([_VERSION, *state, nonce], separators=(",", ":")).encode()


def decode(value: bytes, begin: int, stop: int) -> Partition:
    """The state of a partition, for the shards from `begin` to `stop`. Raises ValueError if it is none."""
    try:
        version, following, token, held, waiting, recent, origin, life, nonce = json.loads(value)
        if version != _VERSION:
            raise ValueError(f"format {version} is not known")
        state = Partition(
            _whole(following, begin, stop),
            _whole(token, 0),
            tuple(_held_of(each, begin, following) for each in held),
            tuple(_whole(shard, begin, following - 1) for shard in waiting),
            tuple(_whole(each, 1, token) for each in recent),
            _text(origin),
            _text(life),
        )
        shards = [*(each.shard for each in state.held), *state.waiting]
        if len(set(shards)) < len(shards) or not _text(nonce):
            raise ValueError("a shard is in two places")
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"the store has a value that no ShardQueue wrote ({error}): {value[:60]!r}") from error
    return state


def _held_of(entry: Any, begin: int, following: int) -> Held:
    shard, token, beat, claim, holder, age = entry
    numbers = _whole(shard, begin, following - 1), _whole(token, 1), _whole(beat, 0)
    return Held(*numbers, _text(claim), _text(holder), _whole(age, 0))


def _whole(number: Any, least: int, most: int | None = None) -> int:
    if type(number) is not int or number < least or (most is not None and number > most):
        raise ValueError(f"{number!r} is not a number from {least} to {most}")
    return number


def _text(text: Any) -> str:
    if type(text) is not str:
        raise TypeError(f"{type(text).__name__} is not a text")
    return text
