"""What is promised of written files is promised of written objects: on every server, in every format."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ClosedError
from conformance.formats import FIRST_CASES, Case
from conformance.storages import RECORDS, write, write_and_fail

from . import servers
from .servers import Played, Server

pytestmark = pytest.mark.filterwarnings("ignore:opening searched")
N = len(RECORDS)
STORES = ["moto", pytest.param("s3s", marks=pytest.mark.framework), "gcs", "azure", "played s3"]
WEB = ["webdav", "played http"]
PARTS = {"upload_part_size": 5 << 20}
LARGE = [bytes([number]) * 3_000_000 for number in range(5)]
"""Records that no single part holds."""


def start(name: str) -> Server:
    if name.startswith("played"):
        return Played(protocol="http" if name == "played http" else "s3")
    return servers.start(name)


@pytest.fixture(scope="module", params=[*STORES, *WEB])
def running(request: pytest.FixtureRequest) -> Iterator[Server]:
    with start(request.param) as started:
        yield started


@pytest.fixture(scope="module", params=STORES)
def running_store(request: pytest.FixtureRequest) -> Iterator[Server]:
    with start(request.param) as started:
        yield started


class Target:
    """A folder of its own in a server."""

    def __init__(self, server: Server, folder: str) -> None:
        self.server, self.folder = server, folder
        self.storage: dict[str, Any] = {**server.storage, **PARTS}

    def url(self, name: str) -> str:
        return self.server.url(f"{self.folder}/{name}")

    def names(self) -> list[str]:
        """Everything in the folder, hidden objects too."""
        start = f"{self.folder}/"
        return [name.removeprefix(start) for name in self.server.names() if name.startswith(start)]

    def get(self, name: str) -> bytes | None:
        return self.server.get(f"{self.folder}/{name}")

    def put(self, name: str, data: bytes) -> None:
        self.server.put(f"{self.folder}/{name}", data)

    def read(self, name: str) -> list[bytes]:
        with anyrecord.open(self.url(name), storage=self.storage) as records:
            return list(records)


def folder_of(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def target(running: Server, request: pytest.FixtureRequest) -> Iterator[Target]:
    found = Target(running, folder_of(request))
    found.put("other", b"not of this set")
    yield found
    assert found.get("other") == b"not of this set"
    if running.scheme != "az":  # nothing removes blocks that are not committed
        assert running.uploads() == []


@pytest.fixture
def store(running_store: Server, request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from target.__wrapped__(running_store, request)  # type: ignore[attr-defined]  # the same for fewer servers


@pytest.fixture(params=FIRST_CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def local(case: Case, records: Any = RECORDS, **keywords: Any) -> dict[str, bytes]:
    """The files that the same call writes to a disk."""
    folder = Path("local")
    folder.mkdir()
    write(folder / f"a{case.suffix}", records, case, **keywords)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def objects(target: Target) -> dict[str, bytes]:
    return {name: target.get(name) or b"" for name in target.names() if name != "other"}


@pytest.mark.parametrize("records", [RECORDS, (), LARGE], ids=["some", "none", "large"])
@pytest.mark.parametrize("announced", [False, True])
def test_an_object_has_the_bytes_of_the_file(target: Target, case: Case, records: Any, announced: bool) -> None:
    count = len(records) if announced else None
    write(target.url(f"a{case.suffix}"), records, case, num_records=count, storage=target.storage)
    assert objects(target) == local(case, records)
    if records:
        assert target.read(f"a{case.suffix}") == list(records)


def test_nothing_is_under_the_name_before_close(target: Target, case: Case) -> None:
    name = f"a{case.suffix}"
    out = anyrecord.create(target.url(name), storage=target.storage, **case.options)
    out.write_many(LARGE)
    assert target.names() == ["other"]
    assert not out.closed
    out.close()
    assert out.closed
    out.close()
    assert target.names() == sorted([name, "other"])
    assert (out.num_records, out.format, [*out.paths]) == (len(LARGE), case.format.name, [target.url(name)])
    with pytest.raises(ClosedError):
        out.write(b"more")
    with pytest.raises(ValueError, match="published"):
        out.discard()


@pytest.mark.parametrize("records", [RECORDS, LARGE], ids=["some", "large"])
@pytest.mark.parametrize("old", [None, b"old"])
def test_an_exception_publishes_nothing_and_leaves_nothing(
    target: Target, case: Case, records: Any, old: bytes | None
) -> None:
    name = f"a{case.suffix}"
    if old is not None:
        target.put(name, old)
    out = write_and_fail(target.url(name), records, case, storage=target.storage, overwrite=True)
    assert objects(target) == ({} if old is None else {name: old})
    with pytest.raises(ClosedError):
        out.write(b"more")


@pytest.mark.parametrize("records", [RECORDS, LARGE], ids=["some", "large"])
def test_discard_throws_everything_away(target: Target, case: Case, records: Any) -> None:
    with anyrecord.create(target.url(f"a{case.suffix}"), storage=target.storage, **case.options) as out:
        out.write_many(records)
        out.discard()
    with pytest.raises(ClosedError, match="discarded"):
        out.close()
    assert objects(target) == {}


def test_a_dropped_writer_warns_and_leaves_nothing_behind(target: Target, case: Case) -> None:
    def write_and_drop() -> None:
        out = anyrecord.create(target.url(f"a{case.suffix}"), storage=target.storage, **case.options)
        out.write_many(LARGE)
        del out
        gc.collect()

    with pytest.warns(RuntimeWarning, match=f"a{case.suffix}"):
        write_and_drop()
    assert objects(target) == {}


def test_an_existing_object_is_kept_and_the_way_to_replace_it_named(target: Target, case: Case) -> None:
    name = f"a{case.suffix}"
    target.put(name, b"old")
    with pytest.raises(FileExistsError, match="overwrite=True") as caught:
        anyrecord.create(target.url(name), storage=target.storage, **case.options)
    assert caught.value.filename == target.url(name)
    assert objects(target) == {name: b"old"}


@pytest.mark.parametrize("records", [RECORDS, LARGE], ids=["some", "large"])
def test_an_object_that_appears_meanwhile_is_kept_too(store: Target, case: Case, records: Any) -> None:
    name = f"a{case.suffix}"
    out = anyrecord.create(store.url(name), storage=store.storage, **case.options)
    out.write_many(records)
    store.put(name, b"somebody else's")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        out.close()
    assert objects(store) == {name: b"somebody else's"}


@pytest.mark.parametrize("records", [RECORDS, LARGE], ids=["some", "large"])
def test_overwrite_replaces_the_object_when_the_new_one_is_whole(target: Target, case: Case, records: Any) -> None:
    name = f"a{case.suffix}"
    write(target.url(name), [b"old"], case, storage=target.storage)
    with anyrecord.create(target.url(name), overwrite=True, storage=target.storage, **case.options) as out:
        out.write_many(records)
        assert target.read(name) == [b"old"]
    assert target.read(name) == list(records)
    assert objects(target) == local(case, records)


@pytest.mark.parametrize("announced", [0, 2, 100])
def test_another_number_of_records_than_announced_is_an_error(target: Target, case: Case, announced: int) -> None:
    options = {**case.options, "num_records": announced, "storage": target.storage}
    with (
        pytest.raises(ValueError, match=f"num_records|{announced}"),
        anyrecord.create(target.url(f"a{case.suffix}"), **options) as out,
    ):
        out.write_many([b"1", b"2", b"3"])
    assert objects(target) == {}


# Sets


SETS: dict[str, dict[str, Any]] = {
    "shards": {"shards": 3},
    "one": {"shards": 1},
    "more than records": {"shards": N + 2},
    "by records": {"shard_records": 10},
    "by bytes": {"shard_bytes": 30_000},
}


@pytest.mark.parametrize("keywords", SETS.values(), ids=SETS)
@pytest.mark.parametrize("announced", [None, N])
def test_a_set_has_the_bytes_of_the_files(
    store: Target, case: Case, keywords: dict[str, Any], announced: int | None
) -> None:
    write(store.url(f"a{case.suffix}"), RECORDS, case, storage=store.storage, num_records=announced, **keywords)
    assert objects(store) == local(case, **keywords)
    pattern = store.read(f"a-*{case.suffix}")
    assert sorted(pattern) == sorted(RECORDS)


def test_a_set_of_large_shards(store: Target, case: Case) -> None:
    write(store.url(f"a{case.suffix}"), LARGE, case, storage=store.storage, shards=2)
    assert objects(store) == local(case, LARGE, shards=2)


def test_a_set_appears_together_or_not_at_all(store: Target, case: Case) -> None:
    url = store.url(f"a{case.suffix}")
    with anyrecord.create(url, shards=2, storage=store.storage, **case.options) as out:
        out.write_many(LARGE)
        assert objects(store) == {}
        out.discard()
    write_and_fail(url, LARGE, case, storage=store.storage, shard_bytes=2_000_000)
    assert objects(store) == {}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_an_existing_set_of_any_size_is_kept(store: Target, case: Case, count: int) -> None:
    url = store.url(f"a{case.suffix}")
    write(url, RECORDS, case, shards=count, storage=store.storage)
    before = objects(store)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        anyrecord.create(url, shards=2, storage=store.storage, **case.options).close()
    assert objects(store) == before


@pytest.mark.parametrize("keywords", SETS.values(), ids=SETS)
def test_overwriting_a_set_leaves_only_the_new_one(store: Target, case: Case, keywords: dict[str, Any]) -> None:
    url = store.url(f"a{case.suffix}")
    write(url, [b"old"] * 9, case, shards=4, storage=store.storage)
    write_and_fail(url, RECORDS, case, overwrite=True, storage=store.storage, **keywords)
    assert len(objects(store)) == 4
    write(url, RECORDS, case, overwrite=True, storage=store.storage, **keywords)
    assert objects(store) == local(case, **keywords)
