"""Folders, globs, `name@N`, ranges and lists of objects are found as those of local files are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyrecord
import pytest

from .files import bytes_of
from .places import LISTING, Place
from .servers import Played


def ffrecord(*records: bytes) -> bytes:
    return bytes_of("ffrecord", records)


KEYS = [
    *(f"set/train-{i:05}-of-00003.ffr" for i in range(3)),
    *(f"tfds/train.ffr-{i:05}-of-00002" for i in range(2)),
    *("deep/a.ffr", "deep/b1/c.ffr", "deep/b2/d.ffr", "deep/b2/e/f.ffr", "deep/.hidden.ffr", "deep/.h/x.ffr"),
    *("plain", "odd/x[1].ffr", "odd/x1.ffr", "odd/y@2", "odd/y-00000-of-00002.ffr", "odd/y-00001-of-00002.ffr"),
    *("lacking/t-00000-of-00003.ffr", "lacking/t-00002-of-00003.ffr"),
    *("twice/t-00000-of-00001.ffr", "twice/t-00000-of-00002.ffr", "twice/t-00001-of-00002.ffr"),
    *("formats/a.ffr", "formats/b.tfrecord", "formats/c.ffr", "nothing/readme.txt"),
]

SET = KEYS[:3]
FOUND: dict[str, list[str]] = {
    "set/train-00001-of-00003.ffr": [SET[1]],
    "set/train.ffr@3": SET,
    "set/train@3": SET,
    "set/": SET,
    "set": SET,
    "set/*.ffr": SET,
    "set/train-?????-of-*": SET,
    "s[a-e]t/*": SET,
    "tfds/train.ffr@2": KEYS[3:5],
    "tfds/train@2": KEYS[3:5],
    "tfds": KEYS[3:5],
    "deep/*.ffr": ["deep/a.ffr"],
    "deep/*/*.ffr": ["deep/b1/c.ffr", "deep/b2/d.ffr"],
    "deep/b2/**": ["deep/b2/d.ffr", "deep/b2/e/f.ffr"],
    "deep/**/*.ffr": ["deep/a.ffr", "deep/b1/c.ffr", "deep/b2/d.ffr", "deep/b2/e/f.ffr"],
    "deep/b[!1]/[a-d].ffr": ["deep/b2/d.ffr"],
    "deep/.*.ffr": ["deep/.hidden.ffr"],
    "plain": ["plain"],
    "odd/x[1].ffr": ["odd/x[1].ffr"],
    "odd/y@2": ["odd/y@2"],
}

LOST: dict[str, tuple[type[Exception], str]] = {
    "set/train.ffr@4": (FileNotFoundError, "no shard of .*there are shards with other counts: 3"),
    "set/train@0": (ValueError, "asks for 0 shards"),
    "set/*.tfrecord": (FileNotFoundError, "no file matches the pattern"),
    "deep/b*": (FileNotFoundError, "matches only folders"),
    "lacking/": (FileNotFoundError, "shard 1 of 3 is missing: t-00001-of-00003.ffr"),
    "lacking/t@3": (FileNotFoundError, "shard 1 of 3 is missing"),
    "lacking/*.ffr": (FileNotFoundError, "shard 1 of 3 is missing"),
    "twice/": (ValueError, "shards of two sets are mixed"),
    "formats/": (ValueError, "different formats: ffrecord, tfrecord; choose one format with a glob"),
    "nothing/": (FileNotFoundError, "contains no file that ends in"),
    "nowhere/": (FileNotFoundError, "contains no file that ends in"),
    "nowhere/*.ffr": (FileNotFoundError, "no file matches the pattern"),
    "set/missing.ffr": (FileNotFoundError, "missing.ffr"),
    "set/train-00000-of-00003.ffr[3:1]": (ValueError, "ends before it starts"),
}


@pytest.fixture(scope="module", params=LISTING)
def where(request: pytest.FixtureRequest, start_place: Any) -> Place:
    place: Place = start_place(request.param)
    for key in KEYS:
        place.put(f"patterns/{key}", ffrecord(*(f"{key} {i}".encode() for i in range(4))))
    return place


def test_patterns_find_the_objects_that_they_would_find_as_files(where: Place) -> None:
    for pattern, keys in FOUND.items():
        if where.name == "webdav" and (pattern in ("set", "tfds") or "?" in pattern):
            continue  # the URL of a web server is a folder only with a slash, and has a query after a question mark
        records = anyrecord.open(where.path(f"patterns/{pattern}"), format="ffrecord", storage=where.storage)
        assert records.paths == [where.shown(f"patterns/{key}") for key in keys], pattern
        assert list(records) == [f"{key} {i}".encode() for key in keys for i in range(4)], pattern


def test_local_files_are_found_by_the_same_patterns(tmp_path: Path) -> None:
    for key in KEYS:
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(ffrecord(b"x"))
    for pattern, keys in FOUND.items():
        records = anyrecord.open(str(tmp_path / pattern), format="ffrecord")
        assert records.paths == [str(tmp_path / key) for key in keys], pattern
    for pattern, (error, says) in LOST.items():
        with pytest.raises(error, match="No such" if pattern == "nowhere/" else says):
            anyrecord.open(f"{tmp_path}/{pattern}", format="ffrecord")


def test_what_is_not_found_is_the_error_that_it_is_for_files(where: Place) -> None:
    for pattern, (error, says) in LOST.items():
        with pytest.raises(error, match=says):
            anyrecord.open(where.path(f"patterns/{pattern}"), format="ffrecord", storage=where.storage)


def test_a_range_reads_a_part_of_an_object(where: Place) -> None:
    path = where.path(f"patterns/{SET[0]}")
    records = anyrecord.open(f"{path}[1:3]", storage=where.storage)
    assert list(records) == [f"{SET[0]} {i}".encode() for i in (1, 2)]


class UrlPath:
    """A path object whose text is a URL, as of `etils.epath`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __fspath__(self) -> str:
        return self._text


def test_a_path_object_is_one_object_or_folder_and_never_a_pattern() -> None:
    with Played({"a/x[1].ffr": ffrecord(b"1"), "a/x1.ffr": ffrecord(b"2")}) as server:
        records = anyrecord.open(UrlPath(server.url("a/x[1].ffr")), storage=server.storage)
        assert list(records) == [b"1"]
        assert len(anyrecord.open(UrlPath(server.url("a")), storage=server.storage)) == 2
        with pytest.raises(FileNotFoundError):
            anyrecord.open(UrlPath(server.url("a/*.ffr")), storage=server.storage)


@pytest.mark.framework
def test_the_path_class_of_etils_is_a_path() -> None:
    from etils import epath

    with Played({"a.ffr": ffrecord(b"1")}) as server:
        path = epath.Path(server.url("a.ffr"))
        assert list(anyrecord.open(path, storage=server.storage)) == [b"1"]
        with anyrecord.create(epath.Path(server.url("b.ffr")), storage=server.storage) as out:
            out.write(b"2")
        assert server.get("b.ffr") == ffrecord(b"2")


def test_a_list_can_mix_local_files_and_objects() -> None:
    with anyrecord.create("local.ffr", durable=False) as out:
        out.write(b"local")
    with Played({"a.ffr": ffrecord(b"a"), "b.ffr": ffrecord(b"b")}) as server:
        source: list[Any] = [server.url("b.ffr"), "local.ffr", server.url("*.ffr"), Path("local.ffr")]
        assert list(anyrecord.open(source, storage=server.storage)) == [b"b", b"local", b"a", b"b", b"local"]


@pytest.mark.parametrize(
    ("pattern", "listings", "objects"),
    [
        ("set/train-00001-of-00003.ffr", 0, 1),
        ("set/train-00001-of-00003.ffr[0:1]", 0, 1),
        ("set/train.ffr@3", 1, 3),
        ("set/", 1, 3),
        ("set", 1, 3),
        ("set/*.ffr", 1, 3),
        ("deep/*/*.ffr", 1, 2),
        ("deep/**/*.ffr", 1, 4),
    ],
)
def test_finding_objects_lists_what_is_needed_and_no_more(pattern: str, listings: int, objects: int) -> None:
    with Played({key: ffrecord(b"x") for key in KEYS}) as server:
        anyrecord.open(server.url(pattern), storage=server.storage)
        listed = [entry for entry in server.log if not entry.key]
        assert (len(listed), server.requests - len(listed)) == (listings, objects)
        assert all(entry.query.get("prefix", "").startswith(pattern.split("/")[0]) for entry in listed)


def test_a_missing_object_is_asked_for_once() -> None:
    with Played() as server:
        with pytest.raises(FileNotFoundError):
            anyrecord.open(server.url("missing.ffr"), storage=server.storage)
        assert server.requests == 1
