"""What is special about PyTorch's stores: blocking calls, forks, connections of their own, and the command."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyrecord._shard_store import as_store
from children import LIMIT_SECONDS, forked, python

from checks.shard_servers import TcpServer

pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def hosted() -> Any:
    from anyrecord.torch import host_store

    return host_store()


def test_a_prefix_store_keeps_its_prefix_and_has_a_connection_of_its_own(hosted: Any) -> None:
    from torch.distributed import PrefixStore

    first, second = (as_store(PrefixStore(name, PrefixStore("job", hosted))) for name in "ab")
    assert first.compare_set("key", None, b"1")
    assert second.get("key") is None
    assert first.get("key") == b"1"
    assert hosted.get("job/a/key") == b"1"


def test_the_store_of_a_process_group_is_taken(hosted: Any) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=hosted, rank=0, world_size=1)
    try:
        store = as_store(dist.distributed_c10d._get_default_store())
        assert store.get("shards") is None
        assert store.compare_set("shards", None, b"1")
    finally:
        dist.destroy_process_group()


def test_a_store_in_memory_is_taken_for_one_process() -> None:
    from torch.distributed import HashStore

    store = as_store(HashStore())
    assert (store.get("a"), store.compare_set("a", b"x", b"y"), store.compare_set("a", None, b"1")) == (
        None,
        False,
        True,
    )
    assert store.get("a") == b"1"
    with pytest.raises(TypeError, match="HashStore cannot be sent to another process"):
        pickle.dumps(store)
    with pytest.raises(RuntimeError, match="HashStore cannot be used in a forked process"):
        forked(lambda: store.get("a"))


def test_a_thread_that_waits_for_a_key_does_not_hold_up_the_shards(hosted: Any) -> None:
    """PyTorch lets one request of a connection wait at a time; the heartbeats of leases must not wait for it."""
    from anyrecord.torch import connect_store

    given = connect_store(f"{hosted.host}:{hosted.port}")
    store = as_store(given)
    waiting = threading.Thread(target=given.wait, args=(["comes later"],))
    waiting.start()
    assert store.compare_set("meanwhile", None, b"1")
    assert waiting.is_alive()
    hosted.set("comes later", "1")
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_forked_process_has_a_connection_of_its_own(hosted: Any) -> None:
    store = as_store(hosted)
    assert store.compare_set("forked", None, b"0")
    for number in range(3):
        assert forked(partial(store.compare_set, "forked", b"%d" % number, b"%d" % (number + 1)))
        assert store.get("forked") == b"%d" % (number + 1)


def test_a_store_can_be_sent_to_another_process(hosted: Any) -> None:
    store = as_store(hosted)
    assert store.compare_set("sent", None, b"1")
    assert (
        python(
            "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).get('sent'))", pickle.dumps(store).hex()
        )
        == "b'1'\n"
    )


def test_a_lost_connection_is_made_again(hosted: Any) -> None:
    from anyrecord.torch import connect_store

    store: Any = as_store(connect_store(f"{hosted.host}:{hosted.port}"))
    assert store.compare_set("lost", None, b"1")
    for link in Path("/proc/self/fd").iterdir():  # the connections of this process to the store
        with SocketOf(int(link.name)) as found:
            if found is not None and peer_port(found) == hosted.port:
                found.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ConnectionError, match=rf"the store of the shards at 127.0.0.1:{hosted.port} does not answer"):
        store.get("lost")
    assert store.get("lost") == b"1"


class SocketOf:
    """The socket with a descriptor, or None. The descriptor stays open."""

    def __init__(self, descriptor: int) -> None:
        try:
            self._found = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            self._found = None  # type: ignore[assignment]

    def __enter__(self) -> socket.socket | None:
        return self._found

    def __exit__(self, *exc: object) -> None:
        if self._found is not None:
            self._found.close()


def peer_port(found: socket.socket) -> int | None:
    try:
        return int(found.getpeername()[1])
    except (OSError, IndexError, ValueError, TypeError):
        return None


@pytest.mark.parametrize(("expected", "value"), [(None, b""), (b"same", b"same")])
def test_values_whose_answer_would_say_nothing_are_refused(hosted: Any, expected: bytes | None, value: bytes) -> None:
    with pytest.raises(ValueError, match="a new value is neither empty nor the old one"):
        as_store(hosted).compare_set("refused", expected, value)


def test_the_default_can_be_reached_from_this_machine_alone(hosted: Any) -> None:
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    fields = [line.split() for line in listening.splitlines()]
    # The local address and the state; 0A: it listens.
    found = [row[1] for row in fields if row[1].endswith(f":{hosted.port:04X}") and row[3] == "0A"]
    assert found == [f"0100007F:{hosted.port:04X}"]


@pytest.mark.parametrize("address", ["nonsense", "host:", ":1", "host:port", "127.0.0.1:0", "127.0.0.1:99999"])
def test_an_address_is_host_and_port(address: str) -> None:
    from anyrecord.torch import connect_store

    with pytest.raises(ValueError, match="the address of a store is 'host:port'"):
        connect_store(address)


def test_without_an_address_the_environment_says_it(hosted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from anyrecord.torch import connect_store

    monkeypatch.delenv("ANYRECORD_STORE", raising=False)
    with pytest.raises(ValueError, match="ANYRECORD_STORE"):
        connect_store()
    monkeypatch.setenv("ANYRECORD_STORE", f"{hosted.host}:{hosted.port}")
    assert connect_store().port == hosted.port


def test_connect_waits_for_a_store_that_is_not_there_yet() -> None:
    from anyrecord.torch import connect_store, host_store

    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(connect_store(f"127.0.0.1:{port}")))
    thread.start()
    store = host_store(port=port)
    thread.join(60)
    assert [client.port for client in found] == [store.port] == [port]


SHOW = "import os, sys; print(os.environ['ANYRECORD_STORE']); sys.exit(int(sys.argv[1]))"


@pytest.mark.parametrize("status", [0, 7])
def test_the_command_gets_the_address_and_its_status_is_passed_on(status: int) -> None:
    command = [sys.executable, "-m", "anyrecord.torch.shard_store", sys.executable, "-c", SHOW, str(status)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == status
    assert ran.stderr.startswith("the store of the shards is at 127.0.0.1:")
    assert ran.stdout.strip() == ran.stderr.split()[-1]


def test_the_store_serves_until_it_is_stopped(tmp_path: Path) -> None:
    with TcpServer(tmp_path) as server:
        store = as_store(server.connect(server.address))
        assert store.compare_set("key", None, b"1")
        server._process.terminate()
        assert server._process.wait(60) == 0


def test_without_pytorch_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['torch'] = None\nfrom anyrecord._shard_tcp import host_store\n"
    script += "try: host_store()\nexcept ImportError as error: print(error)"
    assert python(script) == "a TCPStore needs PyTorch: pip install 'anyrecord[torch]'\n"


def test_nothing_of_pytorch_is_imported_before_it_is_used() -> None:
    script = "import anyrecord, json, sys; anyrecord.MemoryStore(); print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(python(script))
    assert not {"torch", "redis", "ray"} & {name.partition(".")[0] for name in loaded}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-command"], "cannot run no-such-command: "),
        (["--host", "192.0.2.1", "true"], "cannot listen at 192.0.2.1, port 0: "),
        (["--port", "99999", "true"], "cannot listen at 127.0.0.1, port 99999: "),
    ],
)
def test_the_launcher_says_what_it_cannot_do(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "anyrecord.torch.shard_store", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert ran.returncode == 2, ran.stderr
    assert message in ran.stderr.splitlines()[-1]
