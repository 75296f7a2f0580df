"""Objects whose names have special characters, URLs with a query, and lists of names."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import anyrecord
import fsspec
import pytest
from children import forked

from . import servers
from .files import bytes_of
from .servers import Played

ODD = ["a[1].ffr", "a*b.ffr", "a?b.ffr", "a#b.ffr", "a%20c.ffr", "a d.ffr", "a@2.ffr", "é.ffr"]


def ffrecord(*records: bytes) -> bytes:
    return bytes_of("ffrecord", records)


def odd_objects(folder: str = "") -> dict[str, bytes]:
    return {f"{folder}{name}": ffrecord(*(f"{name} {i}".encode() for i in range(4))) for name in ODD}


# Web servers


@pytest.mark.parametrize("name", ODD)
def test_quoted_characters_of_a_web_address_have_no_meaning(name: str) -> None:
    with Played(odd_objects("x[1]/"), protocol="http") as server:
        url = f"{server.endpoint}/x%5B1%5D/{quote(name)}"
        assert list(anyrecord.open(url)) == [f"{name} {i}".encode() for i in range(4)]
        assert list(anyrecord.open(f"{url}[1:2]?key=1")) == [f"{name} 1".encode()]
        assert server.requests == len([entry for entry in server.log if entry.method == "GET"])


def test_listings_of_web_servers_name_what_can_be_opened() -> None:
    with servers.start("webdav") as server:
        for folder in ("odd/", "x[1]/"):
            for key, data in odd_objects(folder).items():
                server.put(key, data)
        for folder in ("odd", "x%5B1%5D"):
            for pattern in ("", "*.ffr", "*"):
                records = anyrecord.open(f"{server.endpoint}/{folder}/{pattern}")
                assert sorted({record[:-2].decode() for record in records}) == sorted(ODD), pattern
                assert sorted(records.paths) == sorted(f"{server.endpoint}/{folder}/{quote(name, '@')}" for name in ODD)
                assert list(anyrecord.open(records.paths)) == list(records)
        for pattern, found in {
            "a%5B1%5D*": ["a[1].ffr"],
            "a%2A*": ["a*b.ffr"],
            "a%3F*": ["a?b.ffr"],
            "a%20*.ffr": ["a d.ffr"],
            "a d*": ["a d.ffr"],
            "a%2520*": ["a%20c.ffr"],
            "[é]*": ["é.ffr"],
            "[%C3%A9]*": ["é.ffr"],
        }.items():
            records = anyrecord.open(f"{server.endpoint}/x%5B1%5D/{pattern}")
            assert [record[:-2].decode() for record in records[::4]] == found, pattern


@pytest.mark.parametrize("place", ["before", "after"])
def test_the_range_of_a_signed_url_is_before_or_after_the_signature(place: str) -> None:
    from anyrecord.compat.array_record.python.array_record_data_source import ArrayRecordDataSource

    out = io.BytesIO()
    with anyrecord.create(out, format="array_record") as writer:
        writer.write_many(b"%d" % i for i in range(9))
    with Played({"a.ffr": ffrecord(b"0", b"1", b"2"), "a": out.getvalue()}, protocol="http") as server:

        def url(name: str, part: str) -> str:
            front = f"{server.endpoint}/{name}"
            return f"{front}{part}?key=1" if place == "before" else f"{front}?key=1{part}"

        records = anyrecord.open(url("a.ffr", "[1:2]"))
        assert (list(records), records.paths) == ([b"1"], [server.url("a.ffr")])
        assert list(anyrecord.open(url("a.ffr", "[:2]"))) == [b"0", b"1"]
        assert list(ArrayRecordDataSource([url("a", "[2:4]")])) == [b"2", b"3"]
        assert {tuple(entry.query.items()) for entry in server.log} == {(("key", "1"),)}


def test_a_listing_is_asked_for_with_the_query_and_the_login() -> None:
    with servers.start("webdav") as server:
        for i in range(2):
            server.put(f"set/t-0000{i}-of-00002.ffr", ffrecord(b"%d" % i))
        for pattern in ("set/", "set/*.ffr", "set/t.ffr@2"):
            records = anyrecord.open(f"{server.endpoint}/{pattern}?key=1")
            assert list(records) == [b"0", b"1"]
            assert all(str(file[-1]).endswith("?key=1") for file in records._source.files())


# Buckets


@pytest.mark.parametrize("name", ODD)
def test_an_object_of_exactly_that_name_is_used(name: str) -> None:
    with Played({**odd_objects("odd/"), **odd_objects("x[1]/")}) as server:
        for folder in ("odd", "x[1]"):
            records = anyrecord.open(f"s3://bucket/{folder}/{name}", storage=server.storage)
            assert list(records) == [f"{name} {i}".encode() for i in range(4)]


# Lists


def test_a_list_of_names_lists_nothing_and_opens_them_together() -> None:
    names = [f"p/part-{i:03}" for i in range(40)]
    with Played({name: ffrecord(name.encode()) for name in names}, gate=True) as server:
        records = anyrecord.open([server.url(name) for name in names], storage=server.storage)
        assert list(records) == [name.encode() for name in names]
        server.clear()
        anyrecord.open([server.url(name) for name in names], storage=server.storage)
        assert not [entry for entry in server.log if not entry.key]
        assert (server.requests, server.waves) == (len(names), 1)


def test_a_folder_in_a_list_has_a_slash_at_its_end() -> None:
    with Played({"d/a.ffr": ffrecord(b"a"), "d/b.ffr": ffrecord(b"b")}) as server:
        source = [server.url("d/"), server.url("d/*.ffr")]
        assert list(anyrecord.open(source, storage=server.storage)) == [b"a", b"b", b"a", b"b"]
        with pytest.raises(FileNotFoundError, match="a folder needs a / at its end"):
            anyrecord.open([server.url("d")], storage=server.storage)


@pytest.mark.filterwarnings("ignore:opening searched")
def test_exact_names_of_the_drop_ins_are_not_listed() -> None:
    from anyrecord.compat.array_record.python.array_record_module import ArrayRecordReader
    from anyrecord.compat.recordio import Scanner

    reads: dict[str, Callable[[str], object]]
    reads = {"array_record": lambda url: ArrayRecordReader(url).read(), "recordio": lambda url: Scanner(url).record()}
    for format, read in reads.items():
        out = io.BytesIO()
        with anyrecord.create(out, format=format) as writer:
            writer.write(b"x")
        with Played({"data": out.getvalue()}, protocol="http") as server:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr("anyrecord._trees.UrlTree.has_folders", lambda self, path: True)
                assert read(server.url("data")) == b"x"
            assert {entry.method for entry in server.log} <= {"GET", "HEAD"}


# A slash too few


@pytest.mark.parametrize(
    "text", ["s3:/bucket/a.ffr", "s3:/bucket/*.ffr", "s3:/bucket/a@2", "gs:/b/", "file:/data/a.ffr"]
)
def test_a_url_that_lacks_a_slash_says_so(text: str) -> None:
    for source in (text, [text]):
        with pytest.raises(FileNotFoundError, match="a URL has two slashes: write '"):
            anyrecord.open(source)


def test_a_local_folder_with_a_colon_is_a_folder() -> None:
    os.makedirs("s3:/bucket")
    with open("s3:/bucket/a.ffr", "wb") as file:
        file.write(ffrecord(b"x"))
    assert list(anyrecord.open("s3:/bucket/a.ffr")) == [b"x"]
    with pytest.raises(FileNotFoundError) as caught:
        anyrecord.open("data:/a.ffr")
    assert "slashes" not in str(caught.value)


# File systems


def test_a_signed_url_of_a_file_system_is_no_pattern() -> None:
    with Played({"a[1].ffr": ffrecord(b"0", b"1"), "a.ffr": ffrecord(b"2")}, protocol="http") as server:
        fs = fsspec.filesystem("http", skip_instance_cache=True)
        assert list(anyrecord.open(f"{server.endpoint}/a.ffr?key=1", storage=fs)) == [b"2"]
        assert list(anyrecord.open(f"{server.endpoint}/a[1].ffr", storage=fs)) == [b"0", b"1"]
        assert list(anyrecord.open(f"{server.endpoint}/a[1].ffr[0:1]?key=1", storage=fs)) == [b"0"]


def test_a_file_system_is_asked_for_the_exact_name_first() -> None:
    fs = fsspec.filesystem("memory")
    for key, data in odd_objects("/names-tests/x[1]/").items():
        fs.pipe(key, data)
    for name in ODD:
        assert anyrecord.open(f"/names-tests/x[1]/{name}", storage=fs)[0] == f"{name} 0".encode()


class Forgetful(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A file system that remembers its listings until it is told to forget them."""

    protocol = "forgetful"
    files: dict[str, bytes]

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        path = self._strip_protocol(path).strip("/")
        if path not in self.dircache:
            under = [name for name in self.files if name.rpartition("/")[0] == path]
            self.dircache[path] = [{"name": n, "size": len(self.files[n]), "type": "file"} for n in under]
        return self.dircache[path]

    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache.clear()

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return self.files[path][start:end]


@pytest.mark.parametrize("pattern", ["d/", "d/*.ffr", "**/*.ffr"])
def test_files_that_were_added_are_found(pattern: str) -> None:
    fs = Forgetful(skip_instance_cache=True)
    fs.files = {"d/a.ffr": ffrecord(b"a")}
    fs.ls("d"), fs.ls("")
    fs.files["d/b.ffr"] = ffrecord(b"b")
    if pattern.startswith("**"):
        fs.find = lambda path, **_: {entry["name"]: entry for entry in fs.ls("d")}
    assert list(anyrecord.open(pattern, storage=fs)) == [b"a", b"b"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_file_system_that_cannot_be_used_after_a_fork_says_so() -> None:
    with Played({"a.ffr": ffrecord(b"0", b"1")}, protocol="http") as server:
        fs = fsspec.filesystem("http", skip_instance_cache=True)
        records = anyrecord.open(server.url("a.ffr"), storage=fs)

        def read() -> tuple[str, bytes]:
            try:
                return str(records[1]), b""
            except OSError as error:
                own = fsspec.filesystem("http", skip_instance_cache=True)
                return str(error), anyrecord.open(server.url("a.ffr"), storage=own)[1]

        said, found = forked(read)
        assert "cannot be used in a forked process; open the records there" in said
        assert server.url("a.ffr") in said
        assert found == b"1" == records[1]


def test_urls_that_differ_only_in_what_is_not_shown_are_different_files() -> None:
    with Played({"a.ffr": ffrecord(b"0", b"1")}, protocol="http") as server:
        fs = fsspec.filesystem("http", skip_instance_cache=True)
        urls = [f"{server.endpoint}/a.ffr{query}" for query in ("", "?key=1", "?key=2")]
        for order in (urls, urls[::-1]):
            server.clear()
            records = anyrecord.open(order, storage=fs)
            assert len(set(records.paths)) == 3
            assert list(records) == [b"0", b"1"] * 3
            asked = [tuple(entry.query.values()) for entry in server.log if entry.method == "HEAD"]
            assert set(asked) == {(), ("1",), ("2",)}
