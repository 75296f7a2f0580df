"""Clients that are not ours, for the tests of the servers and as objects that our own readers accept."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, cast

from obstore.store import from_url

from .servers import Server

if TYPE_CHECKING:
    from obstore.store import ObjectStore, S3Config

LIMIT_SECONDS = 60.0
"""What hangs fails after this long. No answer takes near that long on a busy machine."""


def obstore_of(server: Server) -> ObjectStore:
    """An obstore store for the bucket or the root of a server. It does not try again what fails."""
    config = {name: value for name, value in server.storage.items() if not name.endswith("allow_http")}
    return from_url(
        server.url("").rstrip("/"),
        config=cast("S3Config", config) if config else None,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


class Answer:
    """An answer that was read to its end."""

    def __init__(self, found: http.client.HTTPResponse) -> None:
        self.status = found.status
        self.headers = {name.lower(): value for name, value in found.getheaders()}
        self.body = found.read()


class Client:
    """One connection to a server, by Python's own HTTP client."""

    def __init__(self, server: Server) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_SECONDS)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def send(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> None:
        """`if_match="x"` is the header If-Match."""
        self.connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
        self.send(path, method, body, **headers)
        return Answer(self.connection.getresponse())


def ask(server: Server, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    """One request on a connection of its own."""
    with Client(server) as client:
        return client.ask(path, method, body, **headers)
