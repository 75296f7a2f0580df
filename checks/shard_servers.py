"""Starts each store that a `ShardQueue` can use, as a server for the processes of this machine.

The store in memory cannot leave its process, so it is served from there, by a few lines for tests only.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Self

import anyrecord

__all__ = ["SERVERS", "MemoryServer", "RayServer", "RedisServer", "Server", "TcpServer", "redis_program"]

START_SECONDS = 60.0


class Server(ABC):
    """A store that runs. `address` can be sent to other processes, which call `connect` with it."""

    address: str
    preload: tuple[str, ...] = ()
    """Modules that a process needs to connect."""

    @abstractmethod
    def __init__(self, folder: Path) -> None:
        """Starts it. What it needs is in the folder."""

    @staticmethod
    @abstractmethod
    def connect(address: str) -> Any:
        """What a `ShardQueue` takes as its store."""

    @abstractmethod
    def kill(self) -> None:
        """Ends the store at once, without any clean-up."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


class MemoryServer(Server):
    """A `MemoryStore` of this process. A thread for each client answers its requests."""

    def __init__(self, folder: Path, store: Any = None) -> None:
        self.store = store or anyrecord.MemoryStore()
        self._listener = Listener(str(folder / "memory.socket"), "AF_UNIX", backlog=64)
        self.address = str(self._listener.address)
        self._clients: list[Connection] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client: Any = self._listener.accept()
            except OSError:  # closed
                return
            self._clients.append(client)
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: Connection) -> None:
        with suppress(EOFError, OSError), client:  # the client was killed
            while True:
                method, arguments = client.recv()
                client.send(getattr(self.store, method)(*arguments))

    @staticmethod
    def connect(address: str) -> Any:
        return _ServedStore(address)

    def kill(self) -> None:
        self._listener.close()
        for client in self._clients:
            with suppress(OSError), socket.socket(fileno=os.dup(client.fileno())) as same:
                same.shutdown(socket.SHUT_RDWR)  # its thread ends, and closes it


class _ServedStore:
    """A client of `MemoryServer`. It has a connection for each process, and no lock: the queue has one."""

    def __init__(self, address: str) -> None:
        self._connection = Client(address, "AF_UNIX")

    def get(self, key: str) -> bytes | None:
        found: bytes | None = self._ask("get", key)
        return found

    def compare_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        return bool(self._ask("compare_set", key, expected, value))

    def _ask(self, method: str, *arguments: object) -> Any:
        try:
            self._connection.send((method, arguments))
            return self._connection.recv()
        except EOFError as error:
            raise ConnectionError("the served store has ended") from error


class TcpServer(Server):
    """PyTorch's `TCPStore`, in a process of its own as a launcher has it."""

    preload = ("torch.distributed",)

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "anyrecord.torch.shard_store"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder)
        assert self._process.stderr is not None
        self.address = self._process.stderr.readline().split()[-1]

    @staticmethod
    def connect(address: str) -> Any:
        from anyrecord.torch import connect_store

        return connect_store(address)

    def kill(self) -> None:
        _kill(self._process)


def redis_program() -> str:
    """Where the Redis server is: in the virtual environment, or in the system."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("redis-server", path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    if found is None:
        raise FileNotFoundError("redis-server is missing: `make test` sets it up, or install it (Debian: redis-server)")
    return found


class RedisServer(Server):
    """Redis, which writes nothing to a disk."""

    preload = ("redis",)

    def __init__(self, folder: Path, *options: str) -> None:
        self.address = str(folder / "redis.socket")
        own = ["--port", "0", "--unixsocket", self.address, "--save", "", "--appendonly", "no", "--dir", str(folder)]
        command = [redis_program(), *own, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _wait_for(lambda: bool(self.connect(self.address).ping()))

    @staticmethod
    def connect(address: str) -> Any:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis(unix_socket_path=address, retry=Retry(NoBackoff(), 0))  # tests do not wait for a dead one

    def kill(self) -> None:
        _kill(self._process)


class RayServer(Server):
    """A Ray actor, in a cluster of one node that this process starts."""

    preload = ("ray", "anyrecord.ray")

    def __init__(self, folder: Path) -> None:
        import ray
        from anyrecord.ray import shard_store

        started: Any = ray.init(num_cpus=2, object_store_memory=100 << 20, **_QUIET)
        self.address = started.address_info["gcs_address"]
        self.actor = shard_store("shards")

    @staticmethod
    def connect(address: str) -> Any:
        import ray

        if not ray.is_initialized():
            ray.init(address, **_QUIET)
        return ray.get_actor("shards", "anyrecord")

    def kill(self) -> None:
        import ray

        ray.kill(self.actor)
        with suppress(ray.exceptions.RayActorError):  # it takes a moment
            while True:
                ray.get(self.actor.get.remote(""))

    def __exit__(self, *exc: object) -> None:
        import ray

        self.kill()
        ray.shutdown()


_QUIET: dict[str, Any] = {
    "include_dashboard": False,
    "log_to_driver": False,
    "logging_level": "ERROR",
    "_node_ip_address": "127.0.0.1",
}
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

SERVERS: dict[str, type[Server]] = {
    "memory": MemoryServer,
    "tcp": TcpServer,
    "redis": RedisServer,
    "ray": RayServer,
}


def _wait_for(answers: Any) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            if answers():
                return
        except Exception:
            if time.monotonic() > until:
                raise
        time.sleep(0.01)


def _kill(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()
