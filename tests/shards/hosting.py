"""A store in a process of its own, for tests with several processes."""

from __future__ import annotations

from multiprocessing.managers import BaseManager
from typing import Any

from anyrecord import MemoryStore

__all__ = ["Host", "Remote"]


class Host(BaseManager):
    """A process that has the store."""


Host.register("store", MemoryStore, exposed=("get", "compare_set"))


class Remote:
    """The store in the other process."""

    def __init__(self, proxy: Any) -> None:
        self._proxy = proxy

    def get(self, key: str) -> bytes | None:
        return self._proxy.get(key)  # type: ignore[no-any-return]

    def compare_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        return self._proxy.compare_set(key, expected, value)  # type: ignore[no-any-return]
