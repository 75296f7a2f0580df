"""Every server does what its protocol says, as obstore (which has the object_store crate inside) sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, NotModifiedError, NotSupportedError, PreconditionError

from . import servers
from .clients import obstore_of
from .servers import Played, Server
from .servers.s3s import binary

if TYPE_CHECKING:
    from obstore import PutResult, UpdateVersion
    from obstore.store import ObjectStore

DATA = bytes(range(256)) * 40


@dataclass(frozen=True)
class Abilities:
    """What a server can do beside GET and HEAD with ranges."""

    suffix: bool = True
    conditions: bool = True
    """Whether it heeds If-Match and If-None-Match of GET, with a range too."""
    lists: bool = True
    writes: bool = True
    conditional_writes: bool = True
    multipart: bool = True
    page: int = 1000
    """The most names in one part of a listing."""


ABILITIES = {
    "moto": Abilities(page=100),
    "s3s": Abilities(conditions=False),
    "http": Abilities(conditions=False, lists=False, writes=False, conditional_writes=False, multipart=False),
    "webdav": Abilities(conditional_writes=False, multipart=False),
    "gcs": Abilities(),
    "azure": Abilities(suffix=False),
    "played s3": Abilities(),
    "played http": Abilities(lists=False, conditional_writes=False, multipart=False),
}
PLAYED = {"played s3": lambda: Played(protocol="s3"), "played http": lambda: Played(protocol="http")}


@pytest.fixture(scope="module", params=[*servers.PARAMS, *PLAYED])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def server(name: str) -> Iterator[Server]:
    with PLAYED[name]() if name in PLAYED else servers.start(name) as started:
        started.put("data/a b.ffr", DATA)
        started.put("empty", b"")
        yield started


@pytest.fixture(scope="module")
def store(server: Server) -> ObjectStore:
    return obstore_of(server)


@pytest.fixture
def can(name: str) -> Abilities:
    return ABILITIES[name]


def get(store: ObjectStore, key: str) -> bytes:
    return bytes(obstore.get(store, key).bytes())


def test_an_unknown_server_is_refused() -> None:
    with pytest.raises(KeyError):
        servers.start("ftp")


def test_a_missing_program_is_a_failure_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("S3S_FS", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(AssertionError, match="cargo install s3s-fs"):
        binary()


def test_urls_name_the_scheme_and_the_object(name: str, server: Server) -> None:
    starts = {"gcs": "gs://bucket/", "azure": "az://bucket/"}
    start = starts.get(name, f"{server.endpoint}/" if server.scheme == "http" else "s3://bucket/")
    assert server.url("data/x.ffr") == f"{start}data/x.ffr"


def test_head_tells_size_etag_and_date(store: ObjectStore) -> None:
    found = obstore.head(store, "data/a b.ffr")
    assert found["size"] == len(DATA)
    assert found["e_tag"]
    assert found["last_modified"].year >= 2024
    assert obstore.head(store, "empty")["size"] == 0


def test_an_object_is_read_whole(store: ObjectStore) -> None:
    assert get(store, "data/a b.ffr") == DATA
    assert get(store, "empty") == b""


@pytest.mark.parametrize(("start", "end"), [(0, 1), (5, 10), (0, len(DATA)), (len(DATA) - 1, len(DATA)), (256, 9000)])
def test_bounded_ranges(store: ObjectStore, start: int, end: int) -> None:
    assert bytes(obstore.get_range(store, "data/a b.ffr", start=start, end=end)) == DATA[start:end]


def test_a_range_beyond_the_end_is_cut(store: ObjectStore) -> None:
    found = obstore.get(store, "data/a b.ffr", options={"range": (len(DATA) - 3, len(DATA) + 100)})
    assert bytes(found.bytes()) == DATA[-3:]


def test_a_range_behind_the_end_is_refused(store: ObjectStore) -> None:
    with pytest.raises(GenericError, match="416"):
        obstore.get(store, "data/a b.ffr", options={"range": (len(DATA), len(DATA) + 1)})


@pytest.mark.parametrize("offset", [0, 1, len(DATA) - 1])
def test_ranges_from_an_offset(store: ObjectStore, offset: int) -> None:
    found = obstore.get(store, "data/a b.ffr", options={"range": {"offset": offset}})
    assert bytes(found.bytes()) == DATA[offset:]
    assert found.meta["size"] == len(DATA)


@pytest.mark.parametrize("count", [1, 100, len(DATA)])
def test_suffix_ranges(store: ObjectStore, can: Abilities, count: int) -> None:
    if not can.suffix:
        with pytest.raises(NotSupportedError):
            obstore.get(store, "data/a b.ffr", options={"range": {"suffix": count}})
        return
    found = obstore.get(store, "data/a b.ffr", options={"range": {"suffix": count}})
    assert bytes(found.bytes()) == DATA[-count:]
    assert found.meta["size"] == len(DATA)


def test_a_missing_object_is_not_found(store: ObjectStore) -> None:
    for act in (obstore.head, obstore.get):
        with pytest.raises(FileNotFoundError):
            act(store, "data/missing")


def test_an_object_that_was_replaced_has_another_etag(server: Server, store: ObjectStore) -> None:
    server.put("replaced", b"old")
    old = obstore.head(store, "replaced")["e_tag"]
    server.put("replaced", b"new data")
    new = obstore.head(store, "replaced")["e_tag"]
    assert old
    assert new
    assert old != new
    assert get(store, "replaced") == b"new data"


@pytest.mark.parametrize("range", [(0, len(DATA)), (2, 6)])
def test_conditions_of_get(store: ObjectStore, can: Abilities, range: tuple[int, int]) -> None:
    etag = obstore.head(store, "data/a b.ffr")["e_tag"]
    assert etag
    held = obstore.get(store, "data/a b.ffr", options={"if_match": etag, "range": range})
    assert bytes(held.bytes()) == DATA[slice(*range)]
    if not can.conditions:
        return
    with pytest.raises(PreconditionError):
        obstore.get(store, "data/a b.ffr", options={"if_match": '"other"', "range": range})
    with pytest.raises(NotModifiedError):
        obstore.get(store, "data/a b.ffr", options={"if_none_match": etag, "range": range})


def test_listing_knows_folders(server: Server, store: ObjectStore, can: Abilities) -> None:
    for key in ("tree/a", "tree/b", "tree/sub/c", "tree/sub/deep/d", "trees"):
        server.put(key, key.encode())
    if not can.lists:
        with pytest.raises(GenericError, match="405"):
            obstore.list(store, prefix="tree").collect()
        return
    found = obstore.list(store, prefix="tree").collect()
    assert {entry["path"]: entry["size"] for entry in found} == {
        key: len(key) for key in ("tree/a", "tree/b", "tree/sub/c", "tree/sub/deep/d")
    }
    level = obstore.list_with_delimiter(store, prefix="tree")
    assert level["common_prefixes"] == ["tree/sub"]
    assert sorted(entry["path"] for entry in level["objects"]) == ["tree/a", "tree/b"]


def test_listing_goes_over_more_than_one_page(server: Server, store: ObjectStore, can: Abilities) -> None:
    if not can.lists:
        return
    keys = [f"pages/{number:04}" for number in range(can.page + 5)]
    keys += [f"pages/in/{number}/x" for number in range(5)]
    for key in keys:
        server.put(key, b"")
    assert sorted(entry["path"] for entry in obstore.list(store, prefix="pages").collect()) == sorted(keys)
    level = obstore.list_with_delimiter(store, prefix="pages")
    assert level["common_prefixes"] == ["pages/in"]
    assert len(level["objects"]) == can.page + 5
    if isinstance(server, Played):
        pages = [entry for entry in server.log if entry.key == "" and entry.query.get("prefix") == "pages/"]
        assert len(pages) == 4  # two for each listing


def test_what_is_put_can_be_read(store: ObjectStore, can: Abilities) -> None:
    if not can.writes:
        with pytest.raises(GenericError, match="405"):
            obstore.put(store, "written", b"data")
        return
    made = obstore.put(store, "written", b"data", use_multipart=False)
    assert made["e_tag"] == obstore.head(store, "written")["e_tag"]
    assert get(store, "written") == b"data"
    obstore.put(store, "written", b"other", use_multipart=False)
    assert get(store, "written") == b"other"


def test_a_conditional_put_refuses_to_overwrite(store: ObjectStore, can: Abilities) -> None:
    if not can.conditional_writes:
        with pytest.raises(NotImplementedError):
            obstore.put(store, "once", b"first", mode="create")
        return
    obstore.put(store, "once", b"first", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "once", b"second", mode="create")
    assert get(store, "once") == b"first"


def test_a_conditional_put_refuses_to_update_another_version(store: ObjectStore, can: Abilities) -> None:
    if not can.conditional_writes:
        return
    first = obstore.put(store, "versions", b"first", use_multipart=False)
    second = obstore.put(store, "versions", b"second", mode=_version(first))
    with pytest.raises(PreconditionError):
        obstore.put(store, "versions", b"third", mode=_version(first))
    assert get(store, "versions") == b"second"
    obstore.put(store, "versions", b"fourth", mode=_version(second))
    assert get(store, "versions") == b"fourth"


def _version(made: PutResult) -> UpdateVersion:
    """What tells this version from others: the ETag, or where there are generations, the generation."""
    etag, version = made["e_tag"], made["version"]
    return {"e_tag": etag, "version": version} if version else {"e_tag": etag}


def test_multipart_uploads(store: ObjectStore, can: Abilities) -> None:
    data = DATA * 1400  # three parts of at least 5 MiB, as S3 wants them
    if not can.multipart:
        with pytest.raises(NotImplementedError):
            obstore.put(store, "parts", data, use_multipart=True)
        return
    obstore.put(store, "parts", data, use_multipart=True)
    assert get(store, "parts") == data


def test_an_upload_that_fails_leaves_nothing(store: ObjectStore, can: Abilities) -> None:
    if not can.multipart:
        return

    def parts() -> Iterator[bytes]:
        yield DATA * 600
        raise RuntimeError("the writer failed")

    with pytest.raises(RuntimeError, match="the writer failed"):
        obstore.put(store, "aborted", parts(), use_multipart=True)
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "aborted")


def test_copies(store: ObjectStore, can: Abilities) -> None:
    if not can.multipart:
        return
    obstore.copy(store, "data/a b.ffr", "copied")
    assert get(store, "copied") == DATA


def test_deletes(server: Server, store: ObjectStore, can: Abilities) -> None:
    for key in ("gone/1", "gone/2", "gone/3"):
        server.put(key, b"data")
    if not can.writes:
        with pytest.raises(GenericError, match="405"):
            obstore.delete(store, "gone/1")
        return
    obstore.delete(store, "gone/1")
    obstore.delete(store, ["gone/2", "gone/3"])
    for key in ("gone/1", "gone/2", "gone/3"):
        with pytest.raises(FileNotFoundError):
            obstore.head(store, key)


def test_a_bucket_that_does_not_exist(server: Server) -> None:
    if server.scheme == "http":
        return
    missing = obstore_of(_Elsewhere(server))
    with pytest.raises(FileNotFoundError):
        obstore.get(missing, "data/a b.ffr")


class _Elsewhere(Server):
    """The same server with another bucket."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.scheme, self.port = server.scheme, server.port

    @property
    def storage(self) -> dict[str, str]:
        return self._server.storage

    def url(self, key: str) -> str:
        return f"{self.scheme}://no-such-bucket/{key}"

    def put(self, key: str, data: bytes) -> None:
        raise NotImplementedError

    def get(self, key: str) -> bytes | None:
        raise NotImplementedError

    def names(self) -> list[str]:
        raise NotImplementedError

    def __enter__(self) -> _Elsewhere:
        return self

    def __exit__(self, *_: object) -> None: ...
