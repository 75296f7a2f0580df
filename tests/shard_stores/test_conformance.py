"""What a `ShardQueue` needs of a store, for every store."""

from __future__ import annotations

import multiprocessing
import os
import threading
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import pytest
from anyrecord._shard_store import ShardStore, as_store

from checks.shard_servers import SERVERS, Server

THREADS, PROCESSES, ROUNDS = 8, 2, 20
LIMIT_SECONDS = 120.0
_numbers = count()


@pytest.fixture
def key() -> str:
    """A key that no other test has."""
    return f"key/{next(_numbers)}"


@pytest.fixture
def store(server: Server) -> ShardStore:
    return as_store(server.connect(server.address))


def test_a_missing_key_is_none_at_once(store: ShardStore, key: str) -> None:
    assert store.get(key) is None
    assert store.get(key) is None  # asking has made nothing


def test_a_value_is_created_once(store: ShardStore, key: str) -> None:
    assert store.compare_set(key, None, b"one")
    assert not store.compare_set(key, None, b"two")
    assert store.get(key) == b"one"


def test_a_value_is_changed_only_from_what_it_is(store: ShardStore, key: str) -> None:
    assert store.compare_set(key, None, b"one")
    assert not store.compare_set(key, b"two", b"three")
    assert store.compare_set(key, b"one", b"two")
    assert not store.compare_set(key, b"one", b"three")
    assert store.get(key) == b"two"


def test_a_missing_key_is_no_value_that_is_expected(store: ShardStore, key: str) -> None:
    """PyTorch answers with the expected value then, as if it had been there."""
    assert not store.compare_set(key, b"one", b"two")
    assert store.get(key) is None
    assert store.compare_set(key, None, b"two")


def test_keys_are_independent(store: ShardStore, key: str) -> None:
    keys = [key, f"{key}/0", f"{key}/é", f"{key} {{tag}}*?"]
    assert all(store.compare_set(each, None, each.encode()) for each in keys)
    assert [store.get(each) for each in keys] == [each.encode() for each in keys]


@pytest.mark.parametrize(
    "value",
    [bytes(range(256)), b"\0", b"\xff\xfe", "é".encode(), b"x" * 30_000, os.urandom(300_000), b"\r\n$-1\r\n"],
    ids=["all bytes", "zero", "not UTF-8", "UTF-8", "30 KB", "300 KB", "protocol"],
)
def test_values_are_any_bytes(store: ShardStore, key: str, value: bytes) -> None:
    assert store.compare_set(key, None, value)
    assert store.get(key) == value
    assert not store.compare_set(key, value[:-1] + b"?", b"new")
    assert store.compare_set(key, value, b"new")
    assert store.compare_set(key, b"new", value + b"!")
    assert store.get(key) == value + b"!"


def test_another_client_sees_a_value_as_soon_as_it_is_set(server: Server, store: ShardStore, key: str) -> None:
    other = as_store(server.connect(server.address))
    assert store.compare_set(key, None, b"0")
    for number in range(50):
        first, second = (store, other) if number % 2 else (other, store)
        assert first.get(key) == b"%d" % number
        assert second.compare_set(key, b"%d" % number, b"%d" % (number + 1))


def increase(store: ShardStore, key: str, who: str, times: int) -> None:
    """Adds to a number, so often."""
    for step in range(times):
        while True:
            found = store.get(key)
            number = 0 if found is None else int(found.split()[0])
            if store.compare_set(key, found, f"{number + 1} {who}.{step}".encode()):
                break


def test_of_many_threads_exactly_one_wins_each_round(store: ShardStore, server: Server, key: str) -> None:
    clients = [store] + [as_store(server.connect(server.address)) for _ in range(THREADS - 1)]
    winners: list[list[int]] = [[] for _ in range(ROUNDS)]
    barrier = threading.Barrier(THREADS, timeout=LIMIT_SECONDS)

    def compete(me: int) -> None:
        for number in range(ROUNDS):
            barrier.wait()
            if clients[me].compare_set(f"{key}/{number}", None, b"%d" % me):
                winners[number].append(me)

    threads = [threading.Thread(target=compete, args=(me,)) for me in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert [len(won) for won in winners] == [1] * ROUNDS
    assert [store.get(f"{key}/{number}") for number in range(ROUNDS)] == [b"%d" % won[0] for won in winners]


def contend(kind: str, address: str, key: str, pipe: Connection) -> None:
    """In a process of its own."""
    store = as_store(SERVERS[kind].connect(address))
    pipe.send("ready")
    pipe.recv()
    increase(store, key, str(os.getpid()), ROUNDS)
    pipe.send("done")


def test_processes_that_compete_lose_no_change(server: Server, store: ShardStore, key: str) -> None:
    kind = next(name for name, kind in SERVERS.items() if isinstance(server, kind))
    context: Any = multiprocessing.get_context("spawn")  # with the environment of now, which Ray changes
    pipes = []
    for _ in range(PROCESSES):
        here, there = context.Pipe()
        context.Process(target=contend, args=(kind, server.address, key, there), daemon=True).start()
        pipes.append(here)
    for pipe in pipes:
        assert pipe.poll(LIMIT_SECONDS)
        assert pipe.recv() == "ready"
    for pipe in pipes:
        pipe.send("go")
    for pipe in pipes:
        assert pipe.poll(LIMIT_SECONDS)
        assert pipe.recv() == "done"
    found = store.get(key)
    assert found is not None
    assert int(found.split()[0]) == PROCESSES * ROUNDS


def test_one_client_can_be_used_by_many_threads(store: ShardStore, server: Server, key: str) -> None:
    if type(store).__name__ == "_ServedStore":  # made for one thread
        store = server.store  # type: ignore[attr-defined]
    threads = [threading.Thread(target=increase, args=(store, key, str(me), ROUNDS)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    found = store.get(key)
    assert found is not None
    assert int(found.split()[0]) == 4 * ROUNDS


def test_a_store_that_has_died_is_a_connection_error_at_each_request(server: Server, store: ShardStore) -> None:
    """The last test of this module: it ends the server."""
    assert store.compare_set("last", None, b"value")
    server.kill()
    for _ in range(2):
        with pytest.raises(ConnectionError):
            store.get("last")
        with pytest.raises(ConnectionError):
            store.compare_set("last", b"value", b"new")
