"""What is special about the Ray actor: names, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from anyrecord._shard_store import as_store
from children import python

from checks.shard_servers import RayServer

pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayServer]:
    with RayServer(tmp_path_factory.mktemp("ray")) as running:
        yield running


def test_all_callers_with_a_name_get_the_same_actor(server: RayServer) -> None:
    from anyrecord.ray import shard_store

    first, second, other = shard_store("same"), shard_store("same"), shard_store("other")
    assert as_store(first).compare_set("key", None, b"1")
    assert as_store(second).get("key") == b"1"
    assert as_store(other).get("key") is None
    assert as_store(shard_store()).get("key") is None


def test_a_task_can_use_a_handle_that_it_is_passed(server: RayServer) -> None:
    import ray
    from anyrecord.ray import shard_store

    def claim(actor: Any, who: int) -> bool:
        return as_store(actor).compare_set("claim", None, b"%d" % who)

    actor, task = shard_store("passed"), ray.remote(claim)
    assert sorted(ray.get([task.remote(actor, who) for who in range(4)])) == [False, False, False, True]


DETACHED = """
import sys, ray
from anyrecord.ray import shard_store
from anyrecord._shard_store import as_store
from checks.shard_servers import _QUIET
ray.init(sys.argv[1], **_QUIET)
actor = shard_store(sys.argv[2], detached=False if sys.argv[2] == "attached" else None)
store = as_store(actor)
print(store.get("key"), store.compare_set("key", None, b"1"))
"""


@pytest.mark.parametrize(("name", "second"), [("named", "b'1' False\n"), ("attached", "None True\n")])
def test_a_name_makes_an_actor_outlive_its_job(server: RayServer, name: str, second: str) -> None:
    def job() -> str:
        command = [sys.executable, "-c", DETACHED, server.address, name]
        root = str(Path(__file__).parents[2])
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout

    assert job() == "None True\n"
    assert job() == second


def test_an_actor_with_a_name_outlives_the_task_that_made_it(server: RayServer) -> None:
    """Ray would end it as soon as the task lets go of its handle, even if others have one."""
    import ray
    from anyrecord.ray import shard_store

    def begin() -> None:
        assert as_store(shard_store("of a task")).compare_set("key", None, b"1")

    ray.get(ray.remote(begin).remote())
    assert as_store(shard_store("of a task")).get("key") == b"1"


def test_a_dead_actor_is_named_in_the_error(server: RayServer) -> None:
    import ray
    from anyrecord.ray import shard_store

    actor = shard_store("dies")
    store = as_store(actor)
    assert store.compare_set("key", None, b"1")
    ray.kill(actor)
    with suppress(ray.exceptions.RayActorError):  # it takes a moment
        while True:
            ray.get(actor.get.remote("key"))
    with pytest.raises(ConnectionError, match=r"the Ray actor with the shards does not answer: .*load the state"):
        store.get("key")


def test_another_actor_is_refused(server: RayServer) -> None:
    import ray

    @ray.remote
    class Other:
        pass

    other: Any = Other
    with pytest.raises(TypeError, match="is not an actor that keeps shards"):
        as_store(other.remote())


def test_what_cannot_work_is_refused(server: RayServer) -> None:
    from anyrecord.ray import shard_store

    with pytest.raises(ValueError, match="a detached actor needs a name"):
        shard_store(detached=True)
    with pytest.raises(TypeError, match="shard_store sets 'max_restarts' itself"):
        shard_store("name", max_restarts=1)


def test_without_ray_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['ray'] = None\n"
    script += "try: import anyrecord.ray\nexcept ImportError as error: print(error)"
    assert python(script) == "anyrecord.ray needs Ray: pip install 'anyrecord[ray]'\n"
