"""Shards in a Ray actor, which `anyrecord.ray.shard_store` makes."""

from __future__ import annotations

from typing import Any

__all__ = ["RayStore", "Values"]

TIMEOUT_SECONDS = 30.0
"""A request that takes longer has failed."""


class Values:
    """What the actor is: values in its memory. Ray runs its methods one after the other, so each is atomic."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    def compare_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        if self._values.get(key) != expected:
            return False
        self._values[key] = value
        return True


class RayStore:
    """The adapter for a handle of the actor."""

    def __init__(self, actor: Any) -> None:
        if not (hasattr(actor, "get") and hasattr(actor, "compare_set") and hasattr(actor.get, "remote")):
            raise TypeError(
                f"{actor!r} is not an actor that keeps shards: make one with anyrecord.ray.shard_store(...)"
            )
        self._actor = actor

    def get(self, key: str) -> bytes | None:
        """Returns the value, or None if there is none."""
        found: bytes | None = self._answer(self._actor.get, key)
        return found

    def compare_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """Sets the value if it is `expected` now; None means that there is none yet. Returns whether it did."""
        return bool(self._answer(self._actor.compare_set, key, expected, value))

    def _answer(self, method: Any, *arguments: object) -> Any:
        import ray
        from ray import exceptions

        try:
            return ray.get(method.remote(*arguments), timeout=TIMEOUT_SECONDS)
        except (exceptions.RayActorError, exceptions.GetTimeoutError, exceptions.RaySystemError) as error:
            told = str(error).partition("\n")[0]
            raise ConnectionError(
                f"the Ray actor with the shards does not answer: {told}; what it kept is lost if it has died: "
                "make a new one and load the state of the queue into it"
            ) from error
