"""Targets that cannot be written to are refused by name, before anything is written or read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord.compat import recordio
from anyrecord.compat.array_record.python.array_record_module import ArrayRecordWriter
from anyrecord.compat.ffrecord import FileReader, FileWriter, pack_folder, utils

from .files import bytes_of
from .servers import Played


def file_of(format: str) -> bytes:
    return bytes_of(format, [b"one", b"two"])


WRITES: dict[str, Callable[[Any], object]] = {
    "create": anyrecord.create,
    "shards": lambda url: anyrecord.create(url, shards=2),
    "convert": lambda url: anyrecord.convert("a.ffr", url),
    "salvage": lambda url: anyrecord.salvage("a.ffr", url),
    "pack": lambda url: anyrecord.pack("folder", url),
    "unpack": lambda url: anyrecord.unpack("packed.ffr", url),
    "recover": anyrecord.recover,
    "build_index": anyrecord.build_index,
    "build_index of many": lambda url: anyrecord.build_index(["a.tfrecord", url]),
    "FileWriter": lambda url: FileWriter(url, 1),
    "dump to one": lambda url: utils.dump([b"x"], url, 1),
    "dump to many": lambda url: utils.dump([b"x", b"y"], url, 2),
    "pack_folder": lambda url: pack_folder("folder", url),
    "recordio": recordio.Writer,
}
URLS = {
    "s3://key:hidden@bucket/x.ffr": "names no bucket",
    "hdfs://me:hidden@host/x.ffr": 'the scheme "hdfs"',
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the writers read, and local folders that the URLs would name if they were paths."""
    monkeypatch.chdir(tmp_path)
    Path("a.ffr").write_bytes(file_of("ffrecord"))
    Path("a.tfrecord").write_bytes(file_of("tfrecord"))
    Path("folder").mkdir()
    anyrecord.pack("folder", "packed.ffr")
    for url in URLS:
        os.makedirs(os.path.dirname(os.path.abspath(url)))


def everything() -> set[str]:
    return {os.path.join(folder, name) for folder, folders, names in os.walk(".") for name in folders + names}


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("name", WRITES)
def test_a_url_is_refused_by_name_and_nothing_is_written(name: str, url: str) -> None:
    before = everything()
    with pytest.raises((ValueError, RuntimeError)) as caught:
        WRITES[name](url)
    assert "only a local path" in str(caught.value) if name == "unpack" else URLS[url] in str(caught.value)
    assert {path for path in everything() - before if not path.endswith(".tfrecord.index")} == set()
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("url", URLS)
def test_the_writer_of_array_record_says_so_when_it_is_used(url: str) -> None:
    before = everything()
    writer = ArrayRecordWriter(url)
    assert not writer.ok()
    with pytest.raises(RuntimeError) as caught:
        writer.close()
    assert URLS[url] in str(caught.value)
    assert everything() == before
    assert "hidden" not in str(caught.value)


def test_a_target_is_refused_before_the_source_is_looked_at() -> None:
    with Played({"d/a.ffr": file_of("ffrecord"), "d/a.tfrecord": file_of("tfrecord")}) as server:
        storage = server.storage
        acts: list[Callable[[], object]] = [
            lambda: anyrecord.convert(server.url("d/*.ffr"), "hdfs://host/x.ffr", storage=storage),
            lambda: anyrecord.salvage(server.url("d/*.ffr"), "hdfs://host/x.ffr", storage=storage),
            lambda: anyrecord.unpack(server.url("d/a.ffr"), server.url("x"), storage=storage),
            lambda: anyrecord.convert(server.url("d/*.ffr"), "x.ffr", storage=storage, target_storage=3),
        ]
        for act in acts:
            with pytest.raises((ValueError, TypeError)):
                act()
        assert server.requests == 0


def test_a_file_url_is_a_local_path() -> None:
    with FileWriter(Path("x.ffr").absolute().as_uri(), 1) as writer:
        writer.write_one(b"one")
    assert FileReader("x.ffr").n == 1
    pack_folder(Path("folder").absolute().as_uri(), Path("y.ffr").absolute().as_uri())
    assert len(anyrecord.Folder("y.ffr")) == 0
    utils.dump([b"x", b"y"], Path("parts").absolute().as_uri(), 2)
    assert FileReader(Path("parts").absolute().as_uri()).n == 2
