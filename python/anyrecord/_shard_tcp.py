"""PyTorch's `TCPStore` for shards: how to start one that outlives the workers, and how to connect to it."""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from typing import Any

__all__ = ["ADDRESS", "TIMEOUT_SECONDS", "client_of", "connect_store", "host_store", "reach"]

ADDRESS = "ANYRECORD_STORE"
"""The variable of the environment that says where the store is, as `host:port`."""
TIMEOUT_SECONDS = 30.0
"""A request that takes longer has failed."""
_PAUSE_SECONDS = 0.1
_LAST_PORT = 65535


def host_store(host: str = "127.0.0.1", port: int = 0) -> Any:
    """Starts a `TCPStore` in this process, for the shards of a job. It ends with this process.

    Call it in a process that outlives the workers, such as the script that starts them. `host` is the address to listen
    at: the default can be reached from this machine alone. A `TCPStore` has no password, so never listen at an address
    that strangers can reach. With `port=0` the system chooses a free port.

    >>> from anyrecord.torch import connect_store, host_store
    >>> store = host_store()
    >>> worker = connect_store(f"127.0.0.1:{store.port}")  # in another process
    """
    dist = _distributed()
    if not 0 <= port <= _LAST_PORT:  # the system would take another one
        raise ValueError(f"port={port} is not valid: it must be from 0 to {_LAST_PORT}")
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(socket.SOMAXCONN)
        found: int = listening.getsockname()[1]
        # PyTorch itself would listen at all addresses of the machine. It closes the descriptor that it is given.
        return dist.TCPStore(
            _reachable(host),
            found,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=TIMEOUT_SECONDS),
            master_listen_fd=listening.detach(),
        )


def connect_store(address: str | None = None, *, timeout_seconds: float = 60.0) -> Any:
    """Connects to a `TCPStore` at `host:port`. Left out, the variable `ANYRECORD_STORE` of the environment says where.

    Waits up to `timeout_seconds` for a store that is not there yet. Pass what it returns to `ShardQueue`.

    >>> from anyrecord.torch import connect_store
    >>> connect_store("127.0.0.1:1", timeout_seconds=0)
    Traceback (most recent call last):
        ...
    ConnectionError: no store of shards at 127.0.0.1:1: Connection refused; is the process that hosts it still running?
    """
    where = address if address is not None else os.environ.get(ADDRESS)
    if where is None:
        raise ValueError(
            f"connect_store needs an address such as 'host:29600', or {ADDRESS} in the environment, which "
            "`python -m anyrecord.torch.shard_store COMMAND` sets"
        )
    host, colon, port = where.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) <= _LAST_PORT):
        raise ValueError(f"the address of a store is 'host:port' with a port from 1 to {_LAST_PORT}, found {where!r}")
    until = time.monotonic() + timeout_seconds
    while True:
        try:
            return client_of(host.strip("[]"), int(port), TIMEOUT_SECONDS)
        except ConnectionError:
            if time.monotonic() >= until:
                raise
        time.sleep(_PAUSE_SECONDS)


def client_of(host: str, port: int, seconds: float) -> Any:
    """A new connection. Raises `ConnectionError` at once if nobody listens."""
    dist = _distributed()
    reach(host, port, seconds)
    try:
        return dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=seconds))
    except RuntimeError as error:
        raise ConnectionError(f"no store of shards at {host}:{port}: {str(error).splitlines()[0]}") from error


def reach(host: str, port: int, seconds: float) -> None:
    """Raises `ConnectionError` if nobody listens there. PyTorch itself would go on trying until its time is up."""
    try:
        socket.create_connection((host, port), timeout=seconds).close()
    except OSError as error:
        raise ConnectionError(
            f"no store of shards at {host}:{port}: {error.strerror or error}; "
            "is the process that hosts it still running?"
        ) from error


def _reachable(host: str) -> str:
    """The address that clients on this machine connect to."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)


def _distributed() -> Any:
    try:
        import torch.distributed as dist
    except ImportError as error:
        raise ImportError("a TCPStore needs PyTorch: pip install 'anyrecord[torch]'") from error
    if not hasattr(dist, "TCPStore"):
        raise ImportError("this build of PyTorch has no torch.distributed, so it has no TCPStore")
    return dist
