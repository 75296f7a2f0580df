"""What a `ShardQueue` needs of a store: two operations. And the store for the threads of one process.

Each other store is a file of its own that implements `ShardStore`; `as_store` finds it without importing a framework.

A store keeps a few small values under text keys. It must be linearizable: `compare_set` is atomic, and a `get` that
begins after a `compare_set` has returned sees that value or a later one. Nothing else is needed: no expiry, no clock,
no list of keys.
"""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any, Protocol, runtime_checkable

__all__ = ["MemoryStore", "ShardStore", "as_store"]


@runtime_checkable
class ShardStore(Protocol):
    """The store of a `ShardQueue`. Write a class with these two methods to use another one.

    If the store cannot be reached, both raise an `OSError`. A `compare_set` that raised may have been applied or not.
    The queue reads the value again and recognises what it wrote, because no value is ever written twice.
    """

    def get(self, key: str) -> bytes | None:
        """Returns the value, or None at once if there is none."""
        ...

    def compare_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """Sets the value if it is `expected` now; None means that there is none yet. Returns whether it did."""
        ...


_BETWEEN_PROCESSES = "between processes, use a torch TCPStore, a Redis client or a Ray actor as the store"


class MemoryStore:
    """A store in the memory of this process, for its threads and for tests.

    >>> from anyrecord import MemoryStore
    >>> store = MemoryStore()
    >>> store.compare_set("key", None, b"one"), store.compare_set("key", None, b"two"), store.get("key")
    (True, False, b'one')
    """

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()

    def get(self, key: str) -> bytes | None:
        """Returns the value, or None if there is none."""
        self._refuse_fork()
        with self._lock:
            return self._values.get(key)

    def compare_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """Sets the value if it is `expected` now; None means that there is none yet. Returns whether it did."""
        self._refuse_fork()
        with self._lock:
            if self._values.get(key) != expected:
                return False
            self._values[key] = value
            return True

    def _refuse_fork(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError(f"a forked process has a copy of the MemoryStore only; {_BETWEEN_PROCESSES}")

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"another process would get a copy of the MemoryStore only; {_BETWEEN_PROCESSES}")


# The first part of the module of a client's class, and the adapter for it: the module and the class in it.
_ADAPTERS = {
    "torch": ("anyrecord._shard_store_torch", "TorchStore"),
    "redis": ("anyrecord._shard_store_redis", "RedisStore"),
    "ray": ("anyrecord._shard_store_ray", "RayStore"),
}


def as_store(store: Any) -> ShardStore:
    """Returns the store itself, or an adapter for a client of torch, Redis or Ray."""
    # By the classes, not by the methods: a TCPStore has methods of these names that do something else.
    for cls in type(store).__mro__:
        if adapter := _ADAPTERS.get(cls.__module__.partition(".")[0]):
            module, name = adapter
            found: ShardStore = getattr(importlib.import_module(module), name)(store)
            return found
    if isinstance(store, ShardStore):
        return store
    raise TypeError(
        f"{type(store).__name__} is not a store for shards: pass a torch TCPStore, a Redis client, a Ray actor, "
        "a MemoryStore, or an object with get and compare_set"
    )
