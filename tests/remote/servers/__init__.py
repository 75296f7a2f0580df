"""The servers of the tests. Each listens on a free port of 127.0.0.1 and ends with its context.

    with servers.start("moto") as server:
        server.put("data/a.ffr", data)
        read(server.url("data/a.ffr"), storage=server.storage)

| name | what it is |
|---|---|
| `moto` | S3 by moto: complete, slow |
| `s3s` | S3 by s3s-fs: compiled, fast; ignores If-Match of GET |
| `http` | plain HTTP with ranges, by werkzeug |
| `webdav` | HTTP with ranges and listing, by WsgiDAV |
| `gcs`, `azure` | our own: they follow the documented protocols, and cannot show where the real services differ |

`Played` is our own too: it speaks the same protocols from memory, plays faults and counts requests.

All but `http` store objects as their protocols say, with conditions and in parts; `webdav` has neither.
`server.get(key)`, `server.names()` and `server.uploads()` say what a server has, around what is tested.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import faults
from .files import Dav, Files
from .moto import Moto
from .played import Entry, Played
from .s3s import S3s
from .server import BUCKET, Server

__all__ = ["BUCKET", "NAMES", "PARAMS", "Entry", "Played", "Server", "faults", "start"]

_SERVERS: dict[str, Callable[[], Server]] = {
    "moto": Moto,
    "s3s": S3s,
    "http": Files,
    "webdav": Dav,
    "gcs": lambda: Played(protocol="gcs"),
    "azure": lambda: Played(protocol="azure"),
}
NAMES = tuple(_SERVERS)
PARAMS = [pytest.param(name, marks=pytest.mark.framework) if name == "s3s" else name for name in NAMES]
"""The names for `pytest.mark.parametrize`. Only `make test` installs s3s-fs."""


def start(name: str) -> Server:
    """A server by its name, for `with`."""
    return _SERVERS[name]()
