"""The state of a queue in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyrecord import _core
from anyrecord._numbers import shown
from anyrecord._shard_partitions import Partitions
from anyrecord._shard_state import Partition, restored

__all__ = ["restore", "saved"]

_VERSION = 1


def saved(fingerprint: str, shards: int, states: list[Partition]) -> dict[str, Any]:
    """The state of all partitions. They need not be of the same moment: a shard is in one of them only."""
    partitions = []
    for state in states:
        free = restored(state, "")
        partitions.append({"next": free.next, "token": free.token, "waiting": list(free.waiting)})
    return {"version": _VERSION, "plan": fingerprint, "shards": shards, "partitions": partitions}


def restore(parts: Partitions, fingerprint: str, state: Mapping[str, Any]) -> None:
    """Puts a saved state into the store."""
    found = _checked(parts, fingerprint, state)
    origin = _core.sha1(repr([tuple(each) for each in found]).encode())[:16]
    # All are compared before the first one is written.
    for part, wanted in enumerate(found):
        _compare(parts.look(part)[0], wanted, origin, parts.bounds(part)[0])
    for part, wanted in enumerate(found):
        put = parts.put(part, wanted._replace(origin=origin))
        _compare(put, wanted, origin, parts.bounds(part)[0])


def _compare(there: Partition, wanted: Partition, origin: str, begin: int) -> None:
    # One that another worker has put there may have gone on since.
    if there.origin == origin or there._replace(recent=(), origin="", life="") in (Partition(begin), wanted):
        return
    raise ValueError(
        "the store has progress of its own in this queue; go on without load_state_dict if that is newer, "
        "or begin from the state in a queue of another name="
    )


def _checked(parts: Partitions, fingerprint: str, state: Mapping[str, Any]) -> list[Partition]:
    try:
        if state["version"] != _VERSION:
            raise ValueError
        if state["plan"] != fingerprint:
            raise ValueError(
                f"the state is from another plan: that has the fingerprint {shown(state['plan'])}, this one "
                f"{fingerprint!r}; resume with the same data, seed, epoch and size of shards"
            )
        found = [_partition(parts, part, each) for part, each in enumerate(state["partitions"])]
        if len(found) != parts.count:
            raise ValueError
    except (LookupError, TypeError, ValueError) as error:
        if error.args and "another plan" in str(error):
            raise
        text = f"this is not the state of a ShardQueue; pass what state_dict() returned, not {shown(state)}"
        raise ValueError(text) from None
    return found


def _partition(parts: Partitions, part: int, saved: Any) -> Partition:
    begin, stop = parts.bounds(part)
    following, token, waiting = saved["next"], saved["token"], sorted(saved["waiting"])
    numbers = [following, token, *waiting]
    if any(type(number) is not int for number in numbers) or not begin <= following <= stop or token < 0:
        raise ValueError
    if any(not begin <= shard < following for shard in waiting) or len(set(waiting)) < len(waiting):
        raise ValueError
    return Partition(following, token, waiting=tuple(waiting))
