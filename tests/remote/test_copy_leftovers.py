"""What `copy` leaves for the next call: only where that is possible, never too much, and never wrong bytes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from obstore.store import MemoryStore

from .servers import Played, faults

SMALL, LARGE = b"anything", random.Random(1).randbytes(9_000_000)
"""The large one is sent in two parts."""
IMPATIENT = {"max_retries": 1, "init_backoff": "1ms", "max_backoff": "1ms"}


class Stop(Exception):
    """What a user's function raises."""


def at_the_end(done: int, total: int) -> None:
    if done == total:
        raise Stop


def hidden(server: Played) -> list[str]:
    return [name for name in server.names() if name.rpartition("/")[2].startswith(".")]


@pytest.fixture(autouse=True)
def sources() -> None:
    Path("small").write_bytes(SMALL)
    Path("large").write_bytes(LARGE)


QUERIES = ["", "?signature=1", "?X-Amz-Credential=key/2026/us&X-Amz-Signature=1"]


@pytest.mark.parametrize("query", QUERIES)
def test_a_web_server_is_asked_only_for_the_target(query: str) -> None:
    with Played(protocol="http") as server:
        server.play(faults.error(405), method="DELETE")
        server.play(faults.error(403), when=lambda request: not request.path.endswith("/up/a"))
        anyrecord.copy("small", f"{server.endpoint}/up/a{query}", target_storage={**server.storage, **IMPATIENT})
        assert server.get("up/a") == SMALL
        assert not [entry for entry in server.log if entry.method == "DELETE"]


@pytest.mark.parametrize("protocol", ["s3", "gcs", "azure"])
def test_nothing_is_deleted_that_was_not_left(protocol: Any) -> None:
    with Played(protocol=protocol) as server:
        server.play(faults.access_denied(), method="DELETE")
        server.play(faults.access_denied(), when=lambda r: "delete" in r.query or r.query.get("comp") == "batch")
        anyrecord.copy("small", server.url("a"), target_storage={**server.storage, **IMPATIENT})
        assert server.get("a") == SMALL


def test_what_cannot_be_deleted_after_all_is_published_is_a_warning() -> None:
    with Played(protocol="s3") as server:
        server.play(faults.access_denied(), when=lambda r: r.method == "DELETE" or "delete" in r.query)
        with pytest.warns(RuntimeWarning, match="all files are copied, but a hidden object is left"):
            anyrecord.copy("large", server.url("a"), target_storage={**server.storage, **IMPATIENT})
        assert server.get("a") == LARGE


def test_one_who_may_not_read_hidden_objects_can_copy() -> None:
    with Played(protocol="s3") as server:
        server.play(faults.access_denied(), when=lambda request: ".copied" in request.path)
        anyrecord.copy("large", server.url("a"), target_storage={**server.storage, **IMPATIENT})
        assert server.get("a") == LARGE
        with pytest.raises(Stop):
            anyrecord.copy(
                "large", server.url("b"), target_storage={**server.storage, **IMPATIENT}, progress=at_the_end
            )
        assert server.uploads() == [], "what no later call can find is not left"


def test_a_source_that_does_not_tell_its_version_leaves_nothing() -> None:
    store = MemoryStore()
    store.put("large", LARGE)
    with Played(protocol="s3") as server:
        with pytest.raises(Stop):
            anyrecord.copy("large", server.url("a"), storage=store, target_storage=server.storage, progress=at_the_end)
        assert (server.uploads(), server.names()) == ([], [])


TARGETS: dict[str, Callable[[Played], str]] = {"local": lambda _: "target/", "store": lambda s: s.url("target/")}


@pytest.mark.parametrize("kind", TARGETS)
def test_copies_that_nobody_compared_are_not_continued_by_a_call_that_compares(kind: str) -> None:
    with Played(protocol="s3") as server:
        target, names = TARGETS[kind](server), ["small", "large"]
        storage = {**server.storage, "check_uploads": False}
        with pytest.raises(Stop):
            anyrecord.copy(names, target, target_storage=storage, verify=False, progress=at_the_end)
        for path in Path("target").glob(".*.copied") if kind == "local" else ():
            path.write_bytes(path.read_bytes()[:-1] + b"!")
        assert anyrecord.copy(names, target, target_storage=server.storage).continued == 0
        copies = [
            Path(f"target/{name}").read_bytes() if kind == "local" else server.get(f"target/{name}") for name in names
        ]
        assert copies == [SMALL, LARGE]
        assert (server.uploads(), hidden(server)) == ([], [])
        assert kind == "store" or sorted(os.listdir("target")) == ["large", "small"]


@pytest.mark.parametrize("change", ["same", "changed"])
@pytest.mark.parametrize("kind", TARGETS)
def test_what_an_earlier_call_left_is_used_or_removed(kind: str, change: str) -> None:
    with Played(protocol="s3") as server:
        target = TARGETS[kind](server)
        with pytest.raises(Stop):
            anyrecord.copy(["./large", "small"], target, target_storage=server.storage, progress=at_the_end)
        if change == "changed":
            Path("large").write_bytes(LARGE + b"!")
        spelled = [os.path.abspath("large"), "small"]
        again = anyrecord.copy(
            spelled,
            target.replace("target/", "./target/") if kind == "local" else target,
            target_storage=server.storage,
        )
        assert again.continued == (2 if change == "same" else 1)
        assert (server.uploads(), hidden(server)) == ([], [])
        assert kind == "store" or sorted(os.listdir("target")) == ["large", "small"]


def test_a_file_of_another_source_replaces_what_is_left() -> None:
    Path("other").mkdir()
    Path("target").mkdir()
    Path("other/large").write_bytes(LARGE[::-1])
    with Played(protocol="s3") as server:
        for target in ("target/large", server.url("large")):
            with pytest.raises(Stop):
                anyrecord.copy("large", target, target_storage=server.storage, progress=at_the_end)
            assert anyrecord.copy("other/large", target, target_storage=server.storage).continued == 0
        assert server.get("large") == Path("target/large").read_bytes() == LARGE[::-1]
        assert (server.uploads(), hidden(server), os.listdir("target")) == ([], [], ["large"])


@pytest.mark.parametrize("length", [60, 200])
def test_recover_removes_only_what_is_left_of_that_name(length: int) -> None:
    Path("target").mkdir()
    first, second = "n" * length + "1", "n" * length + "2"
    for name in (first, second):
        with pytest.raises(Stop):
            anyrecord.copy("large", f"target/{name}", progress=at_the_end)
    anyrecord.recover(f"target/{first}")
    assert anyrecord.copy("large", f"target/{second}").continued == 1
    assert anyrecord.copy("large", f"target/{first}").continued == 0
    assert sorted(os.listdir("target")) == [first, second]


@pytest.mark.parametrize(("quoted", "name"), [("a%20b", "a b"), ("a%2Fb", "a%2Fb"), ("a+b", "a+b")])
def test_a_file_from_a_web_server_has_its_real_name(quoted: str, name: str) -> None:
    with Played({"d/a b": SMALL, "d/a/b": SMALL, "d/a+b": SMALL}, protocol="http") as server:
        anyrecord.copy(f"{server.endpoint}/d/{quoted}", "target/", storage=server.storage)
        assert os.listdir("target") == [name]


def test_a_name_that_no_store_takes_is_refused_before_anything_is_sent() -> None:
    Path("new\nline").write_bytes(SMALL)
    with Played(protocol="s3") as server:
        with pytest.raises(ValueError, match="new"):
            anyrecord.copy(["large", "new\nline"], server.url("d/"), target_storage=server.storage)
        assert server.log == []
