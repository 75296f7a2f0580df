"""The servers of the tests. Each listens on a free port of 127.0.0.1 and ends with its context.

    with servers.start("moto") as server:
        server.put("data/a.ffr", data)
        read(server.url("data/a.ffr"), storage=server.storage)

Others wrote `moto` and `s3s` (both S3) and the file server behind `http`. `gcs` and `azure` are our own: they follow the
documented protocols, and cannot show what the real services do differently. `Played` is our own too: it plays faults
and counts requests.
"""

from __future__ import annotations

from collections.abc import Callable

from . import faults
from .moto import Moto
from .played import Entry, Played
from .server import BUCKET, Server

__all__ = ["BUCKET", "NAMES", "Entry", "Played", "Server", "faults", "start"]

_SERVERS: dict[str, Callable[[], Server]] = {"moto": Moto}
NAMES = tuple(_SERVERS)


def start(name: str) -> Server:
    """A server by its name, for `with`."""
    return _SERVERS[name]()
