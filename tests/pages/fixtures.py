"""Servers that pages use. Hidden code of a page asks for one: `<!-- run: getfixture("s3_bucket") -->`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def s3_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`s3://bucket/` is an empty bucket, on a server of this process."""
    from remote.servers import Played

    with Played(protocol="s3") as server:
        for name, value in server.storage.items():
            monkeypatch.setenv(f"AWS_{name.removeprefix('aws_').upper()}", value)
        yield


@pytest.fixture
def redis_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Redis server. Its URL is in the variable `REDIS_URL`."""
    from checks.shard_servers import RedisServer

    with RedisServer(tmp_path) as server:
        monkeypatch.setenv("REDIS_URL", f"unix://{server.address}")
        yield


@pytest.fixture
def ray_cluster(tmp_path: Path) -> Iterator[None]:
    """A Ray cluster of one node."""
    from checks.shard_servers import RayServer

    with RayServer(tmp_path):
        yield
