"""`Folder`: names, contents, and that packs of the original are read as the original reads them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import threading
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path, PurePosixPath
from typing import Any

import anyrecord
import pytest

NAMES = [".hidden", "Z", "a/deep/er/two.bin", "a/one.bin", "a.txt", "b.txt", "日本/ファイル"]


@pytest.fixture
def folder(packed: Path) -> anyrecord.Folder:
    return anyrecord.Folder(packed)


def golden_packs() -> list[dict[str, Any]]:
    manifest = Path(__file__).parents[1] / "golden" / "ffrecord" / "manifest.json"
    files = json.loads(manifest.read_text())["files"]
    return [file for file in files if file["kind"] == "packed"]


@pytest.mark.parametrize("about", golden_packs(), ids=lambda about: str(about["file"]))
def test_packs_of_the_original_are_read(about: dict[str, Any], golden: Path) -> None:
    folder = anyrecord.Folder(golden / "ffrecord" / about["file"])
    assert len(folder) == about["num_files"]
    assert folder.list() == about["list_root"]
    if about["file"] == "packed_many.ffr":  # the manifest leaves its tree out
        assert folder.list(recursive=True) == list(folder)
    else:
        assert folder.list(recursive=True) == [path for path, _ in about["list_recursive"]]
        for path, node in about["tree"].items():
            if node == "dir":
                assert folder.is_dir(path)
            else:
                assert hashlib.sha256(folder[path]).hexdigest() == node["sha256"]
                assert folder.records[node["index"]] == folder[path]


def test_it_is_a_mapping_in_stored_order(folder: anyrecord.Folder, tree: Path) -> None:
    assert isinstance(folder, Mapping)
    assert list(folder) == NAMES
    assert len(folder) == len(NAMES)
    assert dict(folder) == {name: (tree / name).read_bytes() for name in NAMES}
    assert list(folder.keys()) == NAMES
    assert folder.get("nothing") is None
    assert "a" not in folder
    strangers: list[Any] = [7, b"Z", None]
    assert not any(stranger in folder for stranger in strangers)


@pytest.mark.parametrize("path", ["nothing", "a", "", "a/nothing", "Z/below", "/Z", "../tree/Z", "..", 7, None])
def test_what_is_not_a_file_is_a_key_error(folder: anyrecord.Folder, path: Any) -> None:
    with pytest.raises(KeyError):
        folder[path]
    with pytest.raises(KeyError):
        folder.read_many(["Z", path])


@pytest.mark.parametrize("path", ["./Z", "Z/", "a/../Z", "a//one.bin", PurePosixPath("a/one.bin"), "a/./one.bin"])
def test_paths_are_read_as_pathlib_reads_them(folder: anyrecord.Folder, path: str) -> None:
    assert folder.is_file(path) is (".." not in str(path))


def test_questions(folder: anyrecord.Folder) -> None:
    assert [folder.exists(path) for path in ("", ".", "Z", "a", "empty", "nothing", "Z/x", "/")] == [
        True, True, True, True, True, False, False, False,
    ]  # fmt: skip
    assert [folder.is_file(path) for path in ("", "Z", "a", "a/one.bin", "nothing")] == [
        False, True, False, True, False,
    ]  # fmt: skip
    assert [folder.is_dir(path) for path in ("", "Z", "a", "a/deep", "empty")] == [True, False, True, True, True]


def test_list(folder: anyrecord.Folder) -> None:
    assert folder.list() == [".hidden", "Z", "a", "a.txt", "b.txt", "empty", "日本"]
    assert folder.list("a") == ["a/deep", "a/one.bin"]
    assert folder.list("a/", recursive=True) == ["a/deep", "a/deep/er", "a/deep/er/two.bin", "a/one.bin"]
    assert folder.list(files=False) == ["a", "empty", "日本"]
    assert folder.list(recursive=True, folders=False) == NAMES
    assert folder.list("empty") == []
    with pytest.raises(FileNotFoundError):
        folder.list("nothing")
    with pytest.raises(NotADirectoryError):
        folder.list("Z")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", [".hidden", "Z", "a.txt", "b.txt"]),
        ("*.txt", ["a.txt", "b.txt"]),
        ("**", NAMES),
        ("**/*", NAMES),
        ("**/**/*", NAMES),
        ("**/*.bin", ["a/deep/er/two.bin", "a/one.bin"]),
        ("a/**", ["a/deep/er/two.bin", "a/one.bin"]),
        ("a/**/two.bin", ["a/deep/er/two.bin"]),
        ("a/**/one.bin", ["a/one.bin"]),
        ("a/*", ["a/one.bin"]),
        ("?.txt", ["a.txt", "b.txt"]),
        ("[!a].txt", ["b.txt"]),
        ("Z/**", []),
        ("nothing/*", []),
        ("", []),
        ("a", []),
        ("/Z", []),
    ],
)
def test_glob(folder: anyrecord.Folder, pattern: str, found: list[str]) -> None:
    assert folder.glob(pattern) == found


def test_open_gives_a_binary_file(folder: anyrecord.Folder) -> None:
    with folder.open("a/one.bin") as file:
        assert file.read(2) == b"\0\1"
        assert file.seek(-1, io.SEEK_END) == 255
    with pytest.raises(FileNotFoundError):
        folder.open("nothing")
    with pytest.raises(IsADirectoryError):
        folder.open("a")


def test_read_many_keeps_order_and_repeats(folder: anyrecord.Folder) -> None:
    assert folder.read_many(["b.txt", "Z", "b.txt", "a.txt"]) == [b"bee", b"zed", b"bee", b""]
    assert folder.read_many(iter([])) == []


def test_the_tree_can_be_looked_at_but_not_changed(folder: anyrecord.Folder) -> None:
    assert folder.tree["a"]["deep"]["er"]["two.bin"] == 2
    assert folder.tree["empty"] == {}
    with pytest.raises(TypeError):
        folder.tree["a"]["new"] = 1


def test_close_and_context(packed: Path) -> None:
    with anyrecord.Folder(packed) as folder:
        assert not folder.closed
    assert folder.closed
    assert folder.list("a") == ["a/deep", "a/one.bin"]
    with pytest.raises(anyrecord.ClosedError):
        folder["Z"]
    with pytest.raises(anyrecord.ClosedError), folder:
        pass


def test_pickle_and_repr(folder: anyrecord.Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = pickle.loads(pickle.dumps(folder))
    assert copy["Z"] == b"zed"
    assert repr(copy) == repr(folder)
    assert repr(folder).startswith("<anyrecord.Folder: 7 files, 5 folders, sha1 ")
    (Path("few") / "a").mkdir(parents=True)
    Path("few/a/one.bin").write_bytes(b"1")
    anyrecord.pack("few", "few.ffr")
    with anyrecord.Folder("few.ffr") as few:
        assert repr(few).startswith("<anyrecord.Folder: 1 file, 1 folder, sha1 ")
    assert copy != folder
    assert {folder: 1}[folder] == 1


def _read(folder: anyrecord.Folder) -> bytes:
    return folder["b.txt"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_it_works_in_other_processes(folder: anyrecord.Folder, method: str) -> None:
    assert folder["Z"] == b"zed"
    with get_context(method).Pool(1) as pool:
        assert pool.apply(_read, (folder,)) == b"bee"


def test_it_works_from_many_threads(folder: anyrecord.Folder) -> None:
    wrong: list[bytes] = []

    def work() -> None:
        wrong.extend(found for _ in range(200) if (found := folder["Z"]) != b"zed")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_damage_is_an_error_and_checksums_can_be_off(packed: Path) -> None:
    data = bytearray(packed.read_bytes())
    data[data.index(b"zed")] ^= 1
    packed.write_bytes(data)
    with pytest.raises(anyrecord.ChecksumError):
        anyrecord.Folder(packed)["Z"]
    assert anyrecord.Folder(packed, checksums=False)["Z"] == b"{ed"


def test_a_failed_open_leaves_no_descriptor(golden: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        with pytest.raises(anyrecord.FormatError):
            anyrecord.Folder(golden / "ffrecord" / "packed_hostile.ffr")
    assert len(os.listdir("/proc/self/fd")) <= before + 1
