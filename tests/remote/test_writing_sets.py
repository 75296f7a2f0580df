"""Sets of shards in stores: all of them appear, or none. A publish that was interrupted is refused, and recovered."""

from __future__ import annotations

import json
import os
import platform
import random
from collections.abc import Callable
from typing import Any

import anyrecord
import obstore
import pytest
from anyrecord import PublishError

from . import places
from .clients import obstore_of
from .files import bytes_of
from .places import OnServer, Place
from .servers import Played, faults
from .servers.faults import Exchange, Fault
from .servers.messages import Response

WITH_SETS: list[Any] = [param for param in places.PARAMS if param in ("memory", "moto", "gcs", "azure", "obstore s3")]
WITH_SETS += [param for param in places.PARAMS if not isinstance(param, str)]
"""The places that can hold a set that was written there. Only `make test` installs s3s-fs."""
PROTOCOLS: list[Any] = ["s3", "gcs", "azure"]
OLD = [b"old %d" % number for number in range(30)]
NEW = [b"new %d" % number for number in range(50)]
HASTY = {"max_retries": 1, "init_backoff": "1ms", "max_backoff": "1ms"}

pytestmark = pytest.mark.filterwarnings("ignore:opening searched")


@pytest.fixture(params=WITH_SETS)
def place(request: pytest.FixtureRequest, start_place: Any) -> Place:
    """Each place that can hold a set."""
    found: Place = start_place(request.param)
    return found


def left(server: Any) -> list[str]:
    """The uploads that are left. Those of Azure cannot be deleted."""
    found: list[str] = server.uploads()
    return [] if server.scheme == "az" else found


def write(path: str, records: list[bytes], storage: Any, **options: Any) -> anyrecord.Writer:
    with anyrecord.create(path, storage=storage, **options) as out:
        out.write_many(records)
    return out


@pytest.mark.parametrize("how", [{"shards": 3}, {"shard_records": 20}, {"shard_bytes": 100}], ids=str)
def test_shards_appear_together_and_replace_those_of_another_number(place: Place, how: dict[str, Any]) -> None:
    folder = f"set-{next(iter(how))}"
    path, storage = place.path(f"{folder}/train.tfrecord"), place.storage
    write(path, OLD, storage, shards=2, overwrite=True)
    out = anyrecord.create(path, storage=storage, overwrite=True, **how)
    out.write_many(NEW)
    assert sorted(anyrecord.open(f"{path}@2", storage=storage)) == sorted(OLD)
    out.close()
    count = len(out.paths)
    assert out.paths == [place.shown(f"{folder}/train-{i:05}-of-{count:05}.tfrecord") for i in range(count)]
    assert sorted(anyrecord.open(f"{path}@{count}", storage=storage)) == sorted(NEW)
    found = anyrecord.open(place.path(f"{folder}/"), storage=storage)
    assert found.paths == out.paths
    with pytest.raises(FileExistsError, match=f"the {count} shards there"):
        anyrecord.create(path, storage=storage, **how)
    if isinstance(place, OnServer):
        names = [name for name in place.server.names() if name.startswith(folder)]
        assert len(names) == count  # no old shard, no journal
        assert left(place.server) == []


def test_a_conversion_into_a_folder_appears_together(place: Place) -> None:
    storage, both = place.storage, {"storage": place.storage, "target_storage": place.storage}
    for name, records in {"a": OLD, "b": NEW}.items():
        write(place.path(f"from/{name}.tfrecord"), records, storage, overwrite=True)
    source, target = place.path("from/*.tfrecord"), place.path("into/")
    done = anyrecord.convert(source, target, format="ffrecord", overwrite=True, **both)
    assert done.paths == tuple(place.shown(f"into/{name}.ffr") for name in "ab")
    assert list(anyrecord.open(target, storage=storage)) == OLD + NEW
    with pytest.raises(FileExistsError, match="overwrite=True"):
        anyrecord.convert(source, target, format="ffrecord", **both)
    saved = anyrecord.salvage(source, target, format="ffrecord", overwrite=True, **both)
    assert saved.paths == done.paths
    assert not anyrecord.recover(target, storage=storage)


def stuck(server: Played, *, complete: int, old: int | None) -> dict[str, Any]:
    """Leaves a set that was interrupted when some of its four shards were complete. Returns `storage=`."""
    storage = {**server.storage, **HASTY}
    if old is not None:
        write(server.url("d/train.ffr"), OLD, storage, shards=old)
    out = anyrecord.create(server.url("d/train.ffr"), storage=storage, shards=4, overwrite=old is not None)
    out.write_many(NEW)
    done: set[str] = set()

    def after(exchange: Exchange) -> Response:
        key = exchange.protocol.key(exchange.request)
        if key in done or len(done) < complete:
            done.add(key)
            return exchange.right
        return exchange.protocol.error(403, "AccessDenied", "played by the test")

    server.play(Fault("denied", after), when=lambda request: is_complete(server, request))
    # Neither can anything be undone.
    server.play(faults.access_denied(), method="DELETE")
    server.play(faults.access_denied(), when=lambda request: is_delete_of_many(request))
    with pytest.raises(PublishError, match=r"(could not|cannot) be undone.*recover\(.*d/train\.ffr"):
        out.close()
    server.clear()
    assert len(done) == complete
    return storage


def is_delete_of_many(request: Any) -> bool:
    return bool(request.method == "POST" and ("delete" in request.query or request.query.get("comp") == "batch"))


def is_complete(server: Played, request: Any) -> bool:
    query = request.query
    if server.scheme == "az":
        return bool(query.get("comp") == "blocklist")
    return bool(request.method == "POST" and "uploadId" in query)


READERS: dict[str, Callable[[str, Any], object]] = {
    "numbered": lambda url, storage: anyrecord.open(f"{url}@4", storage=storage),
    "old number": lambda url, storage: anyrecord.open(f"{url}@2", storage=storage),
    "glob": lambda url, storage: anyrecord.open(url.replace(".ffr", "-*.ffr"), storage=storage),
    "deep glob": lambda url, storage: anyrecord.open(url.replace("d/train.ffr", "**/*.ffr"), storage=storage),
    "folder": lambda url, storage: anyrecord.open(url.replace("train.ffr", ""), storage=storage),
    "info": lambda url, storage: anyrecord.info(f"{url}@4", storage=storage),
    "convert": lambda url, storage: anyrecord.convert(f"{url}@4", "out.tfrecord", storage=storage),
    "create": lambda url, storage: anyrecord.create(url, storage=storage, shards=4, overwrite=True),
    "create others": lambda url, storage: anyrecord.create(url, storage=storage, shard_records=4, overwrite=True),
    "recover": lambda url, storage: anyrecord.recover(url, storage=storage),
    "recover by number": lambda url, storage: anyrecord.recover(f"{url}@4", storage=storage),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whoever_lists_or_writes_an_interrupted_set_is_told_who_publishes_it(protocol: Any) -> None:
    with Played(protocol=protocol) as server:
        storage, url = stuck(server, complete=2, old=None), server.url("d/train.ffr")
        for act in READERS.values():
            with pytest.raises(PublishError) as caught:
                act(url, storage)
            text = str(caught.value)
            assert "is being published, or was interrupted" in text
            assert f"process {os.getpid()} on {platform.node()} since 20" in text
            assert f'anyrecord.recover("{url}", keep="new")' in text
            assert caught.value.path == server.url("d/.train.ffr.publish")
        # Others are not.
        write(server.url("d/other.ffr"), OLD, storage, shards=2)
        assert sorted(anyrecord.open(server.url("d/other-*.ffr"), storage=storage)) == sorted(OLD)
        assert not anyrecord.recover(server.url("d/other.ffr"), storage=storage)


def test_a_reader_through_a_store_object_is_told_too() -> None:
    with Played() as server:
        stuck(server, complete=2, old=None)
        for store in (obstore_of(server), obstore.store.MemoryStore()):
            if isinstance(store, obstore.store.MemoryStore):
                for key in server.names():
                    obstore.put(store, key, server.get(key) or b"")
            for path in ("d/", "d/train-*.ffr", "d/train.ffr@4"):
                with pytest.raises(PublishError, match="is being published, or was interrupted"):
                    anyrecord.open(path, storage=store)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("complete", range(4))
@pytest.mark.parametrize("old", [None, 2, 4])
def test_an_interrupted_set_is_finished(protocol: Any, complete: int, old: int | None) -> None:
    with Played(protocol=protocol) as server:
        storage, url = stuck(server, complete=complete, old=old), server.url("d/train.ffr")
        done = anyrecord.recover(url, keep="new", storage=storage)
        names = [f"d/train-{number:05}-of-00004.ffr" for number in range(4)]
        assert (done.interrupted, done.kept, done.paths) == (True, "new", tuple(map(server.url, names)))
        assert sorted(anyrecord.open(f"{url}@4", storage=storage)) == sorted(NEW)
        assert (server.names(), left(server)) == (names, [])
        assert not anyrecord.recover(url, storage=storage)
        write(url, OLD, storage, shards=3, overwrite=True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("complete", range(4))
@pytest.mark.parametrize("old", [None, 2, 4])
def test_the_old_set_can_be_kept_as_long_as_nothing_of_it_is_replaced(
    protocol: Any, complete: int, old: int | None
) -> None:
    with Played(protocol=protocol) as server:
        storage, url = stuck(server, complete=complete, old=old), server.url("d/train.ffr")
        if old == 4 and complete:
            with pytest.raises(PublishError, match="the old set cannot be restored"):
                anyrecord.recover(url, keep="old", storage=storage)
            assert anyrecord.recover(url, keep="new", storage=storage)
            return
        done = anyrecord.recover(url, keep="old", storage=storage)
        names = [f"d/train-{number:05}-of-{old:05}.ffr" for number in range(old)] if old else []
        assert (done.interrupted, done.kept, done.paths) == (True, "old", tuple(map(server.url, names)))
        assert (server.names(), left(server)) == (names, [])
        if old:
            assert sorted(anyrecord.open(f"{url}@{old}", storage=storage)) == sorted(OLD)
        write(url, NEW, storage, shards=3, overwrite=True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_error_while_shards_are_completed_is_undone_if_nothing_old_was_replaced(protocol: Any) -> None:
    with Played(protocol=protocol) as server:
        storage, url = {**server.storage, **HASTY}, server.url("d/train.ffr")
        write(url, OLD, storage, shards=2)
        before = server.names()
        out = anyrecord.create(url, storage=storage, shards=4, overwrite=True)
        out.write_many(NEW)
        server.play(faults.access_denied(), path="*-00002-of-00004.ffr", when=lambda r: is_complete(server, r))
        with pytest.raises(PermissionError):
            out.close()
        assert (server.names(), left(server)) == (before, [])
        assert sorted(anyrecord.open(f"{url}@2", storage=storage)) == sorted(OLD)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", [faults.reset(), faults.internal_error(), faults.slow_down()], ids=lambda f: f.name)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_fault_at_any_request_of_publishing_is_overcome(protocol: Any, fault: Fault, overwrite: bool) -> None:
    with Played(protocol=protocol) as server:
        storage = {**server.storage, "init_backoff": "1ms", "max_backoff": "1ms"}
        url = server.url("d/train.ffr")
        if overwrite:
            write(url, OLD, storage, shards=2)
        out = anyrecord.create(url, storage=storage, shards=3, overwrite=overwrite)
        out.write_many(NEW)
        first = server.requests
        out._seal()
        server.play(fault, number=[first + at for at in random.Random(fault.name).sample(range(1, 20), 8)])
        out.close()
        assert sorted(anyrecord.open(f"{url}@3", storage=storage)) == sorted(NEW)
        assert server.names() == [f"d/train-{number:05}-of-00003.ffr" for number in range(3)]
        assert left(server) == []


def test_a_set_that_another_process_publishes_meanwhile_is_refused() -> None:
    with Played() as server:
        url, storage = server.url("d/train.ffr"), server.storage
        first = anyrecord.create(url, storage=storage, shards=2)
        first.write_many(NEW)
        write(url, OLD, storage, shards=3)
        with pytest.raises(FileExistsError, match="overwrite=True"):
            first.close()
        second = anyrecord.create(url, storage=storage, shards=2, overwrite=True)
        second.write_many(NEW)
        server.put("d/.train.ffr.publish", b'{"anyrecord": "publish 1", "ho')
        with pytest.raises(PublishError, match="its journal is damaged"):
            second.close()
        assert sorted(
            anyrecord.open([server.url(f"d/train-0000{n}-of-00003.ffr") for n in range(3)], storage=storage)
        ) == sorted(OLD)
        assert left(server) == []


def test_the_journal_says_what_is_published() -> None:
    with Played() as server:
        stuck(server, complete=1, old=2)
        journal = json.loads(server.get("d/.train.ffr.publish") or b"")
        assert journal["anyrecord"] == "publish 1"
        assert (journal["host"], journal["process"]) == (platform.node(), os.getpid())
        assert [member["name"] for member in journal["new"]] == [f"train-{n:05}-of-00004.ffr" for n in range(4)]
        assert [member["name"] for member in journal["old"]] == [f"train-{n:05}-of-00002.ffr" for n in range(2)]
        assert {member["upload"] for member in journal["new"]} >= set(server.uploads())


def test_a_file_of_another_program_is_no_journal() -> None:
    with Played({"d/.train.ffr.publish": b"notes", "d/train.ffr": bytes_of("ffrecord", OLD)}) as server:
        assert list(anyrecord.open(server.url("d/*.ffr"), storage=server.storage)) == OLD
        assert not anyrecord.recover(server.url("d/train.ffr"), storage=server.storage)
