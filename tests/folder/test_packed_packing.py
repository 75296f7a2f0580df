"""`pack`: order, links, what cannot be packed, and that the result is exchangeable with the original's."""

from __future__ import annotations

import io
import json
import os
import pickle
import socket
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import _core


def unpickled(path: Path) -> Any:
    """The listing as the original reads it."""
    record = anyrecord.open(path)[-1]
    assert record[:9] == b"piouhjgbr"
    return pickle.loads(record[9:])


def test_records_and_listing_are_the_originals(packed: Path, tree: Path) -> None:
    listing = unpickled(packed)
    assert listing == OrderedDict(
        {
            ".hidden": 0,
            "Z": 1,
            "a": OrderedDict(deep=OrderedDict(er=OrderedDict({"two.bin": 2})), **{"one.bin": 3}),
            "a.txt": 4,
            "b.txt": 5,
            "empty": OrderedDict(),
            "日本": OrderedDict({"ファイル": 6}),
        }
    )
    assert type(listing) is type(listing["a"]) is OrderedDict
    assert anyrecord.open(packed)[3] == (tree / "a/one.bin").read_bytes()
    assert anyrecord.open(packed)[-1][9:11] == b"\x80\x04"


@pytest.mark.parametrize("name", ["packed_nested", "packed_only_dirs", "packed_empty", "packed_many"])
def test_what_the_original_packed_packs_to_the_same_records(name: str, golden: Path, tmp_path: Path) -> None:
    original = golden / "ffrecord" / f"{name}.ffr"
    anyrecord.Folder(original).unpack(tmp_path / "out")
    anyrecord.pack(tmp_path / "out", tmp_path / "again.ffr")
    theirs, ours = anyrecord.open(original), anyrecord.open(tmp_path / "again.ffr")
    assert list(theirs[:-1]) == list(ours[:-1])
    assert pickle.loads(theirs[-1][9:]) == unpickled(tmp_path / "again.ffr")


def test_manifest_has_the_packs_used_here(golden: Path) -> None:
    files = json.loads((golden / "ffrecord" / "manifest.json").read_text())["files"]
    assert {"packed_nested.ffr", "packed_many.ffr"} <= {file["file"] for file in files}


def test_the_same_folder_gives_the_same_bytes(tree: Path, packed: Path, tmp_path: Path) -> None:
    anyrecord.pack(tree, tmp_path / "again.ffr", durable=False)
    assert (tmp_path / "again.ffr").read_bytes() == packed.read_bytes()


def test_links_are_followed_and_stored_as_copies(tree: Path, tmp_path: Path) -> None:
    (tree / "to_file").symlink_to(tree / "b.txt")
    (tree / "to_folder").symlink_to(tree / "a", target_is_directory=True)
    anyrecord.pack(tree, tmp_path / "links.ffr")
    folder = anyrecord.Folder(tmp_path / "links.ffr")
    assert folder["to_file"] == b"bee"
    assert folder["to_folder/one.bin"] == folder["a/one.bin"]


def test_a_link_loop_is_an_error(tree: Path, tmp_path: Path) -> None:
    (tree / "a" / "up").symlink_to(tree, target_is_directory=True)
    with pytest.raises(OSError, match="points to a folder that contains it"):
        anyrecord.pack(tree, tmp_path / "out.ffr")
    assert not (tmp_path / "out.ffr").exists()


def test_a_link_to_nowhere_is_an_error(tree: Path, tmp_path: Path) -> None:
    (tree / "dangling").symlink_to("nothing")
    with pytest.raises(FileNotFoundError):
        anyrecord.pack(tree, tmp_path / "out.ffr")
    assert not (tmp_path / "out.ffr").exists()


def test_pipes_and_sockets_are_refused_without_waiting(tree: Path, tmp_path: Path) -> None:
    os.mkfifo(tree / "pipe")
    with pytest.raises(OSError, match="named pipe"):
        anyrecord.pack(tree, tmp_path / "out.ffr")
    (tree / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tree / "s"))
        with pytest.raises(OSError, match="socket"):
            anyrecord.pack(tree, tmp_path / "out.ffr")
    assert sorted(os.listdir(tmp_path)) == ["tree"]


def test_a_pipe_that_takes_the_place_of_a_file_is_refused(tree: Path, tmp_path: Path) -> None:
    def swap(done: int, total: int) -> None:
        if (tree / "b.txt").is_file():
            (tree / "b.txt").unlink()
            os.mkfifo(tree / "b.txt")

    with pytest.raises(OSError, match="named pipe"):
        anyrecord.pack(tree, tmp_path / "out.ffr", progress=swap)


def test_an_unreadable_file_publishes_nothing(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "out.ffr").write_bytes(b"old")

    def remove(done: int, total: int) -> None:
        (tree / "b.txt").unlink(missing_ok=True)

    with pytest.raises(FileNotFoundError):
        anyrecord.pack(tree, tmp_path / "out.ffr", overwrite=True, progress=remove)
    assert (tmp_path / "out.ffr").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["out.ffr", "tree"]


@pytest.mark.parametrize("inside", ["out.ffr", "a/out.ffr", "../tree/a/deep/out.ffr", "link/out.ffr"])
def test_a_target_inside_the_folder_is_refused(tree: Path, tmp_path: Path, inside: str) -> None:
    (tmp_path / "link").symlink_to(tree / "a", target_is_directory=True)
    target = tmp_path / inside if inside.startswith("link") else tree / inside
    with pytest.raises(ValueError, match="inside"):
        anyrecord.pack(tree, target)
    assert not target.exists()


def test_overwrite_is_asked_for(tree: Path, packed: Path) -> None:
    with pytest.raises(FileExistsError, match="overwrite=True"):
        anyrecord.pack(tree, packed)
    (tree / "new").write_bytes(b"!")
    anyrecord.pack(tree, packed, overwrite=True)
    assert anyrecord.Folder(packed)["new"] == b"!"


def test_progress_counts_bytes(tree: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    anyrecord.pack(tree, tmp_path / "out.ffr", progress=lambda *call: calls.append(call))
    total = sum(file.stat().st_size for file in tree.rglob("*") if file.is_file())
    assert len(calls) == 7
    assert calls[-1] == (total, total)
    assert calls == sorted(calls)
    (tmp_path / "nothing").mkdir()
    anyrecord.pack(tmp_path / "nothing", tmp_path / "empty.ffr", progress=lambda *call: calls.append(call))
    assert calls[-1] == (0, 0)


def test_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        anyrecord.pack(tmp_path / "file", tmp_path / "out.ffr")
    with pytest.raises(FileNotFoundError):
        anyrecord.pack(tmp_path / "nothing", tmp_path / "out.ffr")


def test_too_deep_to_be_read_back_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / "tree" / "/".join("d" * 63)
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"at level 64")
    anyrecord.pack(tmp_path / "tree", tmp_path / "out.ffr")
    assert list(anyrecord.Folder(tmp_path / "out.ffr").values()) == [b"at level 64"]
    (deep / "one_more").mkdir()
    with pytest.raises(ValueError, match="64 levels"):
        anyrecord.pack(tmp_path / "tree", tmp_path / "too_deep.ffr")


def test_names_that_are_not_utf8_survive(tmp_path: Path) -> None:
    raw = b"caf\xe9\xff.txt"
    (tmp_path / "tree").mkdir()
    with open(os.path.join(os.fsencode(tmp_path / "tree"), raw), "wb") as file:
        file.write(b"latin")
    anyrecord.pack(tmp_path / "tree", tmp_path / "out.ffr")
    folder = anyrecord.Folder(tmp_path / "out.ffr")
    assert dict(folder) == {os.fsdecode(raw): b"latin"}
    folder.unpack(tmp_path / "back")
    assert os.listdir(os.fsencode(tmp_path / "back")) == [raw]


@pytest.mark.parametrize("suffix", [suffix for suffix, format in _core.suffixes() if format != "ffrecord"])
def test_a_suffix_of_another_format_is_refused(tree: Path, tmp_path: Path, suffix: str) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"a packed folder is FFRecord; use \.ffr"):
        anyrecord.pack(tree, tmp_path / f"packed{suffix}")
    assert sorted(tmp_path.iterdir()) == before
    for name in ("packed.ffr", "packed", "packed.bin", f"packed{suffix}.bin"):
        anyrecord.pack(tree, tmp_path / name, durable=False)


@pytest.mark.parametrize("name", ["x" * 300 + ".ffr", "x.ffr/", "missing/x.ffr", "folder.ffr"])
def test_a_target_that_cannot_be_is_refused_before_the_folder_is_looked_at(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.ffr").mkdir()
    with pytest.raises(OSError) as caught:
        anyrecord.pack(tmp_path / "source that is not there either", name)
    assert "source" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.ffr"]


def test_a_file_object_gets_the_bytes_of_a_file(packed: Path, tree: Path) -> None:
    out = io.BytesIO()
    anyrecord.pack(tree, out)
    assert out.getvalue() == packed.read_bytes()
    read, write = os.pipe()  # cannot seek
    with ThreadPoolExecutor(1) as reader, os.fdopen(read, "rb") as end:
        arrived = reader.submit(end.read)
        with os.fdopen(write, "wb") as pipe:
            anyrecord.pack(tree, pipe)
        assert arrived.result() == packed.read_bytes()
