"""Where objects can be when they are read: servers, the memory of the process, and objects of other libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import fsspec
import obstore
import pytest
from anyrecord import _core
from obstore.store import MemoryStore, S3Store

from . import servers
from .clients import obstore_of
from .servers import BUCKET, Played
from .servers.server import ACCESS_KEY, SECRET_KEY


class Place(Protocol):
    """A place with objects."""

    name: str
    can_list: bool
    can_pickle: bool

    @property
    def storage(self) -> Any:
        """What to pass as `storage=`."""

    def path(self, key: str) -> str:
        """What to pass to `open`."""

    def shown(self, key: str) -> str:
        """What `records.paths` says."""

    def put(self, key: str, data: bytes) -> None:
        """Stores an object."""


@dataclass
class OnServer:
    """Objects of a server, by their URLs."""

    name: str
    server: servers.Server
    can_list: bool = True
    can_pickle: bool = True

    @property
    def storage(self) -> Any:
        return self.server.storage

    def path(self, key: str) -> str:
        # `url` of a web server quotes the magic characters of patterns.
        return f"{self.server.endpoint}/{key}" if self.is_web else self.server.url(key)

    def shown(self, key: str) -> str:
        return self.server.url(key).replace("%40", "@")  # which needs no quotes

    @property
    def is_web(self) -> bool:
        return self.server.scheme == "http"

    def put(self, key: str, data: bytes) -> None:
        self.server.put(key, data)


@dataclass
class InStore(OnServer):
    """Objects of a server, through an obstore store."""

    store: Any = None
    is_taken_apart: bool = True

    @property
    def storage(self) -> Any:
        return self.store

    def path(self, key: str) -> str:
        return key

    def shown(self, key: str) -> str:
        return self.server.url(key) if self.is_taken_apart else key


class InMemory:
    """`memory://`."""

    name = "memory"
    can_list = can_pickle = True
    storage = None

    def path(self, key: str) -> str:
        return f"memory://{key}"

    shown = path

    def put(self, key: str, data: bytes) -> None:
        _core.put_object(self.path(key), data, [])


class InMemoryStore:
    """A store of obstore that is only in memory."""

    name = "obstore memory"
    can_list, can_pickle = True, False

    def __init__(self) -> None:
        self.storage = MemoryStore()

    def path(self, key: str) -> str:
        return key

    shown = path

    def put(self, key: str, data: bytes) -> None:
        obstore.put(self.storage, key, data)


class InFileSystem:
    """A file system of fsspec that is only in memory. All of them share their files."""

    name = "fsspec memory"
    can_list = can_pickle = True

    def __init__(self) -> None:
        self.storage = fsspec.filesystem("memory")

    def path(self, key: str) -> str:
        return f"/remote-tests/{key}"

    shown = path

    def put(self, key: str, data: bytes) -> None:
        self.storage.pipe(self.path(key), data)


def credentials() -> Any:
    """A function that provides credentials, as obstore takes it."""
    return {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY, "expires_at": None}


NAMES = (
    *("memory", "moto", "s3s", "http", "webdav", "gcs", "azure"),
    *("obstore memory", "obstore s3", "obstore http", "obstore credentials", "fsspec memory"),
)
PARAMS = [pytest.param(name, marks=pytest.mark.framework) if name == "s3s" else name for name in NAMES]
"""Only `make test` installs s3s-fs."""
LISTING = [param for param in PARAMS if param not in ("http", "obstore http")]
"""The places that can list their objects."""


@contextmanager
def start(name: str) -> Iterator[Place]:
    """A place by its name."""
    match name:
        case "memory":
            yield InMemory()
        case "obstore memory":
            yield InMemoryStore()
        case "fsspec memory":
            yield InFileSystem()
        case "obstore s3":
            with Played() as server:
                yield InStore(name, server, store=obstore_of(server))
        case "obstore http":
            with Played(protocol="http") as server:
                yield InStore(name, server, can_list=False, store=obstore_of(server))
        case "obstore credentials":
            with Played() as server:
                store = S3Store(
                    BUCKET,
                    endpoint=server.endpoint,
                    region="us-east-1",
                    client_options={"allow_http": True},
                    credential_provider=credentials,
                )
                yield InStore(name, server, store=store, is_taken_apart=False)
        case _:
            with servers.start(name) as server:
                yield OnServer(name, server, can_list=name != "http")
