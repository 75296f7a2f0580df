"""What is special about Redis: settings of clients, lost answers, clusters."""

from __future__ import annotations

import pickle
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from anyrecord._shard_store import as_store
from children import forked, python

from checks.shard_servers import RedisServer

pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.mark.parametrize(
    "settings",
    [{"decode_responses": True}, {"protocol": 2}, {"protocol": 3}, {"single_connection_client": True}, {"db": 3}],
    ids=str,
)
def test_any_settings_of_a_client_do(server: RedisServer, settings: dict[str, Any]) -> None:
    import redis

    with redis.Redis(unix_socket_path=server.address, **settings) as client:
        store, key = as_store(client), f"settings {settings}"
        assert store.get(key) is None
        assert store.compare_set(key, None, b"\xff\0")
        assert store.compare_set(key, b"\xff\0", b"\xfe")
        assert store.get(key) == b"\xfe"


def test_a_forked_process_and_a_sent_store_have_connections_of_their_own(server: RedisServer) -> None:
    import redis

    client = redis.Redis(unix_socket_path=server.address, decode_responses=True)
    store = as_store(client)
    assert store.compare_set("forked", None, b"\xff")
    assert forked(lambda: store.compare_set("forked", b"\xff", b"\xfe"))
    assert store.get("forked") == b"\xfe"
    script = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).get('forked'))"
    assert python(script, pickle.dumps(store).hex()) == "b'\\xfe'\n"
    client.close()


def test_a_connection_is_not_used_again_after_an_interrupt(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer may arrive late, and would be taken for the answer to the next request."""
    import redis

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with redis.Redis(unix_socket_path=server.address) as client:
        store = as_store(client)
        assert store.compare_set("interrupted", None, b"1")
        with monkeypatch.context() as patch:
            patch.setattr(redis.UnixDomainSocketConnection, "read_response", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.get("interrupted")
        [connection] = client.connection_pool._available_connections
        assert connection._sock is None
        assert store.get("interrupted") == b"1"


class LossyProxy:
    """Passes requests on, and loses the next answer on demand: it closes the connection instead."""

    def __init__(self, target: str) -> None:
        self._target, self.loses, self.requests = target, False, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._target)
            while request := client.recv(1 << 20):
                server.sendall(request)
                answer = server.recv(1 << 20)  # so it was applied
                if b"EVAL" in request:
                    self.requests += 1
                    if self.loses:
                        self.loses = False
                        return
                client.sendall(answer)

    def close(self) -> None:
        self._listening.close()


def test_a_change_whose_answer_was_lost_is_not_sent_again(server: RedisServer) -> None:
    """The client of Redis would send it again, and the second one would find another value than was expected."""
    import redis

    proxy = LossyProxy(server.address)
    with redis.Redis(port=proxy.port) as client:
        store = as_store(client)
        assert store.compare_set("lossy", None, b"1")
        proxy.loses, proxy.requests = True, 0
        with pytest.raises(ConnectionError, match="Redis does not answer"):
            store.compare_set("lossy", b"1", b"2")
        assert proxy.requests == 1
        assert store.get("lossy") == b"2"
    proxy.close()


def test_a_key_of_another_kind_is_an_error_of_redis(server: RedisServer) -> None:
    import redis

    with redis.Redis(unix_socket_path=server.address) as client:
        client.rpush("list", "1")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            as_store(client).get("list")


def test_other_objects_of_the_package_are_refused(server: RedisServer) -> None:
    import redis
    import redis.asyncio

    with redis.Redis(unix_socket_path=server.address) as client:
        for wrong in (redis.asyncio.Redis(), client.pipeline(), client.pubsub()):
            with pytest.raises(TypeError, match=r"pass a redis\.Redis or a redis\.RedisCluster"):
                as_store(wrong)


def free_port() -> int:
    """A free port whose number leaves room: the cluster's own port is 10,000 above it."""
    while True:
        with socket.socket() as free, suppress(OSError):
            port = random.randrange(20_000, 30_000)
            free.bind(("127.0.0.1", port))
            return port


def test_a_cluster_finds_the_node_of_each_key(tmp_path: Path) -> None:
    import redis

    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes"]
    with RedisServer(tmp_path, *options) as server:
        with redis.Redis(unix_socket_path=server.address) as node:
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while node.cluster("INFO")["cluster_state"] != "ok":
                pass
        with redis.RedisCluster(host="127.0.0.1", port=port) as client:
            store = as_store(client)
            for number in range(64):
                assert store.compare_set(f"queue/{number}", None, b"1")
                assert store.compare_set(f"queue/{number}", b"1", b"%d" % number)
            assert [store.get(f"queue/{number}") for number in range(64)] == [b"%d" % i for i in range(64)]
            with pytest.raises(TypeError, match="cannot be sent to another process"):
                pickle.dumps(store)
            server.kill()
            with pytest.raises(ConnectionError):
                store.get("queue/0")
