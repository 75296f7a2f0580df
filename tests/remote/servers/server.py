"""What every server of the tests can do."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self
from urllib.parse import quote

BUCKET = "bucket"
"""The one bucket (for Azure: container) that every server with buckets has."""

ACCESS_KEY, SECRET_KEY = "test-access-key", "test-secret-key"


class Server(ABC):
    """A server on a free port of 127.0.0.1. It runs from `__enter__` to `__exit__`."""

    scheme: str
    """What the server's URLs begin with: `s3`, `gs`, `az` or `http`."""
    port: int
    """Known once the server has started."""

    @property
    def endpoint(self) -> str:
        """The URL of the server itself."""
        return f"http://127.0.0.1:{self.port}"

    def url(self, key: str) -> str:
        """The URL of an object, as a user writes it."""
        return f"{self.scheme}://{BUCKET}/{key}"

    @property
    @abstractmethod
    def storage(self) -> dict[str, str]:
        """Endpoint and credentials, by the names that the object_store crate and obstore have for them."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Stores an object, or replaces it."""

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """The data of an object, if it exists."""

    @abstractmethod
    def names(self) -> list[str]:
        """The keys of all objects, sorted."""

    def uploads(self) -> list[str]:
        """The uploads in parts that were begun and neither completed nor aborted. This server has none."""
        return []

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def s3_storage(endpoint: str) -> dict[str, str]:
    """What a client of an S3 server at `endpoint` has to know."""
    return {
        "aws_endpoint": endpoint,
        "aws_region": "us-east-1",
        "aws_access_key_id": ACCESS_KEY,
        "aws_secret_access_key": SECRET_KEY,
        "aws_allow_http": "true",
    }


def quoted(key: str) -> str:
    """A key as it stands in the path of a request."""
    return quote(key, safe="/-_.~")


def free_port() -> int:
    """A port that nobody listens on; for servers that cannot choose one themselves."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
