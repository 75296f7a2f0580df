"""A child process that stops before each of its system calls: a test can look, let it fail, or kill it."""

from __future__ import annotations

from collections.abc import Callable

from checks.stopping import CHANGES, GO_ON, KILL, OPENS, RENAMES, missing, watch

__all__ = ["GO_ON", "KILL", "OPENS", "RENAMES", "can_stop", "kill_at_rename", "stop_at_each"]


def can_stop() -> bool:
    """Whether the system can do this."""
    return missing() is None


def stop_at_each(
    act: Callable[[], object], decide: Callable[[int, str], int], calls: frozenset[str] = CHANGES
) -> int | None:
    """Runs `act` in a forked child and calls `decide` before each call that changes files, or each of `calls`.

    `decide` gets the number of the call, from 0 on, and its name. It returns `GO_ON`, `KILL`, or the number of an error
    that the call then fails with. Returns 0, 1 if `act` raised, None if the child was killed.
    """
    ended = watch(act, lambda call: decide(call.number, call.name), "/", calls)
    if ended.error:
        print(ended.text)
    return None if ended.killed else int(bool(ended.error))


def kill_at_rename(act: Callable[[], object], number: int) -> None:
    """Runs `act` in a child that is killed before its rename with that number, from 0 on."""
    renames = 0

    def decide(_: int, call: str) -> int:
        nonlocal renames
        renames += call in RENAMES
        return KILL if renames > number else GO_ON

    assert stop_at_each(act, decide) is None, "there are not so many renames"
