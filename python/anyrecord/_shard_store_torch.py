"""Shards in a store of PyTorch: a `TCPStore`, also behind a `PrefixStore`.

A process has a connection of its own. The store that was passed may be in use by another thread that waits for a key,
and then a lease could not be renewed. A connection cannot be shared with a forked process either. And it is of no use
after an error: the answer to an old request may still arrive.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from anyrecord._shard_tcp import TIMEOUT_SECONDS, client_of, reach

__all__ = ["TorchStore"]

_NO_VALUE = b"anyrecord: no value"
"""It is never stored. A `compare_set` that expects it and sets it changes nothing and tells the value, without waiting
for a key that is not there, as PyTorch's `get` does."""


class TorchStore:
    """The adapter for a store of PyTorch."""

    def __init__(self, store: Any) -> None:
        if not hasattr(store, "compare_set"):
            raise TypeError(f"{type(store).__name__} cannot keep shards: pass a TCPStore of PyTorch")
        self._given = store  # not let go in a forked child, where a server cannot be closed
        self._connect, self._place = _connector(store)
        self._is_of_one_process = self._connect is None and type(store).__name__ != "FileStore"
        self._connection: Any = None
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        """Returns the value, or None if there is none."""
        found = self._compare_set(key, _NO_VALUE, _NO_VALUE)
        return None if found in (_NO_VALUE, b"") else found

    def compare_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """Sets the value if it is `expected` now; None means that there is none yet. Returns whether it did."""
        if not value or value == expected:  # PyTorch's answer would not tell whether there is a value
            raise ValueError(f"a new value is neither empty nor the old one, found {value!r} for {key!r}")
        # The answer is the value that the key now has. If the key is missing, it is what was expected.
        return self._compare_set(key, b"" if expected is None else expected, value) == value

    def _compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        connection = self._connected()
        try:
            answer: bytes = connection.compare_set(key, expected, value)
        except RuntimeError as error:  # all errors of PyTorch's stores are
            with self._lock:
                if self._connection is connection:
                    self._connection = None
            raise ConnectionError(
                f"the store of the shards at {self._place} does not answer: {_first_line(error)}; "
                "is the process that hosts it still running?"
            ) from error
        return answer

    def _connected(self) -> Any:
        if self._pid != os.getpid():  # forked; another thread may have held the lock then
            if self._is_of_one_process:
                raise RuntimeError(
                    f"a {type(self._given).__name__} cannot be used in a forked process; as the store of the shards, "
                    "pass a TCPStore"
                )
            self._lock, self._connection, self._pid = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._connection is None:
                self._connection = self._given if self._connect is None else self._connect()
            return self._connection

    def __reduce__(self) -> tuple[Any, ...]:
        if not hasattr(self._given, "port"):
            raise TypeError(
                f"a {type(self._given).__name__} cannot be sent to another process; as the store of the shards, "
                "pass the TCPStore itself"
            )
        return _of_address, (self._given.host, self._given.port, self._given.timeout.total_seconds())


def _of_address(host: str, port: int, seconds: float) -> TorchStore:
    return TorchStore(client_of(host, port, seconds))


def _connector(store: Any) -> tuple[Callable[[], Any] | None, str]:
    """A function that makes a new connection to the same store, if that is possible, and where the store is."""
    seconds = min(store.timeout.total_seconds(), TIMEOUT_SECONDS)
    if hasattr(store, "port"):
        return lambda: client_of(store.host, store.port, seconds), f"{store.host}:{store.port}"
    bottom = getattr(store, "_underlying_non_prefix_store", store)
    if hasattr(bottom, "port") and hasattr(store, "clone"):  # a PrefixStore on a TCPStore

        def clone() -> Any:
            reach(bottom.host, bottom.port, seconds)
            made = store.clone()
            made.set_timeout(timedelta(seconds=seconds))
            return made

        return clone, f"{bottom.host}:{bottom.port}"
    return None, type(bottom).__name__


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
