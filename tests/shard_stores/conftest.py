"""Every store, as a server that runs for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from checks.shard_servers import SERVERS, Server

STORES = [pytest.param(name, marks=[pytest.mark.framework] * (name != "memory"), id=name) for name in SERVERS]


@pytest.fixture(scope="module", params=STORES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with SERVERS[request.param](tmp_path_factory.mktemp("store")) as running:
        yield running
