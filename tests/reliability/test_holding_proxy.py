"""The proxy of the check `upload_kills` stops exactly where it should."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest
from remote.clients import LIMIT_SECONDS
from remote.servers import Played

from checks.holding_proxy import STAGES, HoldingProxy, Moment, Stage

DATA = bytes(range(256)) * 5000


@pytest.fixture
def server() -> Iterator[Played]:
    with Played() as started:
        yield started


def put(proxy: HoldingProxy, key: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=LIMIT_SECONDS)
    try:
        connection.request("PUT", f"/bucket/{key}", DATA)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def test_without_a_moment_requests_pass_and_are_counted(server: Played) -> None:
    with HoldingProxy(server.port) as proxy:
        proxy.begin(None, lambda: pytest.fail("it was not to stop"))
        assert [put(proxy, "a"), put(proxy, "b")] == [200, 200]
        assert proxy.requests == ["PUT /bucket/a HTTP/1.1", "PUT /bucket/b HTTP/1.1"]
        assert server.get("a") == server.get("b") == DATA
        proxy.begin(None, lambda: None)
        assert proxy.requests == []


@pytest.mark.parametrize("stage", STAGES)
def test_it_stops_before_within_and_after_a_request(server: Played, stage: Stage) -> None:
    stopped = []
    with HoldingProxy(server.port) as proxy:
        proxy.begin(Moment(2, stage), lambda: stopped.append(server.get("b")))
        assert put(proxy, "a") == 200
        with pytest.raises(http.client.RemoteDisconnected):
            put(proxy, "b")
        with pytest.raises(http.client.RemoteDisconnected):  # nothing goes on after that
            put(proxy, "c")
        proxy.settle()
        assert stopped == [DATA if stage == "after" else None]
        assert server.names() == (["a", "b"] if stage == "after" else ["a"])
        assert len(proxy.requests) == 2
        proxy.begin(None, lambda: None)
        assert put(proxy, "c") == 200
