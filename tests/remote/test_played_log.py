"""The log of our own server, waves, latency, the capped link, and how the server goes with threads and forks."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import obstore
import pytest

from .clients import Client, ask, obstore_of
from .servers import Played, faults

DATA = bytes(range(256)) * 400
PATH = "/bucket/a"


def test_the_log_has_every_request() -> None:
    with Played({"a b": DATA}) as server, Client(server) as client, Client(server) as other:
        client.ask("/bucket/a%20b", range="bytes=10-19")
        client.ask("/bucket/missing", "HEAD")
        other.ask("/bucket?list-type=2&prefix=a")
        first, second, third = server.log
    assert (first.number, first.method, first.path, first.key) == (1, "GET", "/bucket/a b", "a b")
    assert (first.range, first.status, first.bytes, first.connection) == ("bytes=10-19", 206, 10, 1)
    assert (second.number, second.method, second.range, second.status, second.bytes) == (2, "HEAD", None, 404, 0)
    assert (second.connection, third.connection) == (1, 2)
    assert (third.key, third.query["prefix"], third.status) == ("", "a", 200)
    assert (first.fault, first.headers["host"]) == (None, f"127.0.0.1:{server.port}")


def test_the_log_tells_what_was_sent_of_a_broken_answer() -> None:
    with Played({"a": DATA}) as server:
        server.play(faults.reset(), number=1)
        server.play(faults.reset(after=100), number=2)
        for _ in range(2):
            with pytest.raises(ConnectionResetError):
                ask(server, PATH)
        assert [(entry.status, entry.bytes, entry.fault) for entry in server.log] == [
            (None, 0, "reset"),
            (200, 100, "reset"),
        ]


def test_clear_forgets_requests_waves_and_faults() -> None:
    with Played({"a": DATA}) as server, Client(server) as client:
        server.play(faults.internal_error())
        client.ask(PATH)
        client.ask(PATH)
        assert (server.requests, server.waves) == (2, 2)
        server.clear()
        assert (server.requests, server.waves) == (0, 0)
        assert client.ask(PATH).status == 200
        assert (server.log[0].number, server.log[0].wave) == (1, 1)


def test_requests_one_after_the_other_are_waves() -> None:
    for gate in (False, True):
        with Played({"a": DATA}, gate=gate) as server, Client(server) as client:
            for _ in range(4):
                client.ask(PATH)
            assert [entry.wave for entry in server.log] == [1, 2, 3, 4]


def test_requests_that_are_in_flight_together_are_one_wave() -> None:
    async def read(count: int) -> None:
        await asyncio.gather(*(obstore.get_range_async(store, "a", start=at, end=at + 9) for at in range(count)))

    with Played({"a": DATA}, gate=True) as server:
        store = obstore_of(server)
        asyncio.run(read(100))
        assert (server.requests, server.waves) == (100, 1)
        asyncio.run(read(50))
        assert (server.requests, server.waves) == (150, 2)


def test_a_client_with_a_limit_needs_more_waves() -> None:
    with Played({"a": DATA}, gate=True) as server, ThreadPoolExecutor(4) as pool:
        for answer in [pool.submit(ask, server, PATH) for _ in range(12)]:
            answer.result()
        assert [sum(entry.wave == wave for entry in server.log) for wave in (1, 2, 3, 4)] == [4, 4, 4, 0]


def test_a_request_that_is_stalled_and_sent_again_makes_no_wave() -> None:
    with Played({"a": DATA}) as server, Client(server) as stalled, Client(server) as client:
        server.play(faults.stall(), number=1)
        stalled.send(PATH)
        while not server.requests:
            time.sleep(0.001)
        stalled.connection.close()
        assert client.ask(PATH).body == DATA
        assert client.ask(PATH).body == DATA
        assert [entry.wave for entry in server.log] == [1, 1, 2]


def test_a_client_that_needs_long_to_send_is_waited_for() -> None:
    """A busy machine makes no waves of what a client sends without waiting for an answer."""
    with Played({"a": DATA}, gate=True) as server:
        clients = [Client(server) for _ in range(5)]
        for client in clients:
            client.send(PATH)
            ready = time.thread_time() + 0.06  # of work
            while time.thread_time() < ready:
                pass
        for client in clients:
            assert client.connection.getresponse().read() == DATA
            client.connection.close()
        assert [entry.wave for entry in server.log] == [1] * 5


def test_latency_comes_before_every_answer_and_not_one_after_the_other() -> None:
    with Played({"a": DATA}, latency=0.1) as server, ThreadPoolExecutor(8) as pool:
        start = time.monotonic()
        for answer in [pool.submit(ask, server, PATH) for _ in range(8)]:
            answer.result()
        assert time.monotonic() - start >= 0.1
        with Client(server) as client:
            start = time.monotonic()
            client.ask(PATH)
            client.ask(PATH)
            assert time.monotonic() - start >= 0.2


def test_all_connections_share_the_link() -> None:
    with Played({"a": DATA}, bytes_per_second=len(DATA) * 4 / 0.4) as server, ThreadPoolExecutor(4) as pool:
        start = time.monotonic()
        for answer in [pool.submit(ask, server, PATH) for _ in range(4)]:
            assert answer.result().body == DATA
        assert time.monotonic() - start >= 0.39


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_hold_connections_open() -> None:
    """A connection is reset only when the last process that has it open lets go of it."""
    with Played({"a": DATA}) as server, Client(server) as client:
        client.ask(PATH)
        server.play(faults.reset())
        until, done = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(done)
            os.read(until, 1)
            os._exit(0)
        try:
            with pytest.raises(ConnectionResetError):
                client.ask(PATH)
        finally:
            os.close(done)
            os.close(until)
            os.waitpid(child, 0)


def test_a_server_leaves_no_thread_and_no_port_behind() -> None:
    before = threading.active_count()
    with Played({"a": DATA}) as server:
        assert ask(server, PATH).body == DATA
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        ask(server, PATH)


def test_a_mistake_in_the_server_fails_the_test() -> None:
    def wrong(request: object) -> bool:
        raise RuntimeError("a mistake of the test")

    server = Played({"a": DATA})
    server.play(faults.internal_error(), when=wrong)
    with pytest.raises(AssertionError, match="the server itself failed"), server, pytest.raises(ConnectionError):
        ask(server, PATH)


def test_put_and_get_of_the_server_itself() -> None:
    with Played() as server:
        assert server.get("a") is None
        server.put("a", DATA)
        assert server.get("a") == ask(server, PATH).body == DATA
        assert server.names() == ["a"]
