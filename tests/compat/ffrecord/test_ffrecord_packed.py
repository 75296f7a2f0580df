"""`pack_folder` and `PackedFolder`, call by call, and the examples of the original's documentation."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path, PosixPath
from typing import Any

import anyrecord
import numpy as np
import pytest
from anyrecord.compat.ffrecord import FileReader, PackedFolder, pack_folder

FOLDER = Path(__file__).parents[2] / "golden" / "ffrecord"
MANIFEST: list[dict[str, Any]] = json.loads((FOLDER / "manifest.json").read_text())["files"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "just_a_folder"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "001.txt").write_text("first")
    (root / "002.txt").write_text("")
    (root / "sub" / "003.txt").write_text("third")
    (root / "sub" / "deep" / "4").write_bytes(bytes(range(256)))
    return root


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> PackedFolder:
    pack_folder(source, tmp_path / "packed.ffr")
    return PackedFolder(tmp_path / "packed.ffr")


def test_the_documented_calls(source: Path) -> None:
    pack_folder("just_a_folder", "packed.ffr")
    folder = PackedFolder("packed.ffr")
    assert folder.list() == ["001.txt", "002.txt", "empty", "sub"]
    assert folder.list("sub") == ["003.txt", "deep"]
    assert folder.is_file("001.txt")
    assert not folder.is_file("sub")
    assert folder.is_dir("sub")
    assert folder.exists("sub/003.txt")
    assert not folder.exists("005.txt")
    data = folder.read("001.txt")
    assert isinstance(data, np.ndarray)
    assert bytes(data) == b"first"
    assert [bytes(data) for data in folder.read(["sub/003.txt", "001.txt"])] == [b"third", b"first"]
    assert folder.read_one("sub/003.txt").tobytes() == b"third"


def test_the_documented_recipes_without_images(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    (root / "a.txt").write_text("grüße", encoding="utf-8")
    (root / "a.json").write_text('{"x": [1, 2]}')
    np.save(root / "a.npy", np.arange(6).reshape(2, 3))
    np.savez(root / "a.npz", first=np.ones(3), second=np.zeros(2))
    pack_folder(root, "files.ffr")
    folder = PackedFolder("files.ffr")

    assert folder.read_one("a.txt").tobytes().decode("utf-8") == "grüße"
    assert str(folder.read_one("a.txt"), "utf-8") == "grüße"  # type: ignore[call-overload]  # any buffer will do
    assert json.loads(folder.read_one("a.json").tobytes()) == {"x": [1, 2]}
    assert np.load(io.BytesIO(folder.read_one("a.npy").data)).tolist() == [[0, 1, 2], [3, 4, 5]]
    with np.load(io.BytesIO(folder.read("a.npz"))) as arrays:
        assert arrays["first"].tolist() == [1, 1, 1]
    with open("copy.npz", "wb") as file:
        file.write(folder.read("a.npz"))
    assert Path("copy.npz").read_bytes() == (root / "a.npz").read_bytes()


def test_attributes(folder: PackedFolder, tmp_path: Path) -> None:
    assert isinstance(folder.reader, FileReader)
    assert folder.reader.fnames == [str(tmp_path / "packed.ffr")]
    assert folder.num_files() == folder.reader.n - 1 == 4
    assert folder.structure == OrderedDict(
        {
            "001.txt": 0,
            "002.txt": 1,
            "empty": OrderedDict(),
            "sub": OrderedDict({"003.txt": 2, "deep": OrderedDict({"4": 3})}),
        }
    )
    assert type(folder.structure) is type(folder.structure["sub"]) is OrderedDict


def test_list(folder: PackedFolder) -> None:
    assert folder.list(recursive=True) == [
        "001.txt", "002.txt", "empty", "sub", Path("sub/003.txt"), Path("sub/deep"), Path("sub/deep/4"),
    ]  # fmt: skip
    assert folder.list("sub", recursive=True) == ["003.txt", "deep", Path("deep/4")]
    assert folder.list(list_file=False) == ["empty", "sub"]
    assert folder.list(list_dir=False) == ["001.txt", "002.txt"]
    assert folder.list(None, True, False, True) == ["001.txt", "002.txt", Path("sub/003.txt"), Path("sub/deep/4")]
    assert folder.list("") == folder.list(".") == folder.list()
    assert folder.list("empty") == []


@pytest.mark.parametrize("path", ["./001.txt", "sub//003.txt", "sub/./003.txt", "001.txt/", Path("sub/003.txt")])
def test_paths_go_through_pathlib(folder: PackedFolder, path: Any) -> None:
    assert folder.exists(path)
    assert folder.is_file(path)
    assert folder.read_one(path).nbytes == 5


@pytest.mark.parametrize("path", ["/001.txt", "..", "sub/../001.txt", "nothing", "001.txt/below", "sub/003.txt/x/y"])
def test_what_never_exists(folder: PackedFolder, path: str) -> None:
    assert not folder.exists(path)
    assert not folder.is_file(path)
    assert not folder.is_dir(path)
    for call in (lambda: folder.read_one(path), lambda: folder.read([path]), lambda: folder.list(path)):
        with pytest.raises(AssertionError) as caught:
            call()
        assert str(caught.value) == f"{path} does not exist"


def test_files_and_folders_mixed_up(folder: PackedFolder) -> None:
    with pytest.raises(AssertionError, match=r"^sub is not a file but a directory$"):
        folder.read_one("sub")
    with pytest.raises(AssertionError, match=r"^001.txt is not a directory but a file$"):
        folder.list("001.txt")
    with pytest.raises(AssertionError):
        folder.read({"001.txt"})
    assert folder.read([]) == []
    assert [bytes(data) for data in folder.read(("001.txt", "001.txt"))] == [b"first", b"first"]


def test_pickle(folder: PackedFolder) -> None:
    again = pickle.loads(pickle.dumps(folder))
    assert again.read_one("001.txt").tobytes() == b"first"
    assert again.structure == folder.structure


@pytest.mark.parametrize("about", [a for a in MANIFEST if a["kind"] == "packed"], ids=lambda about: str(about["file"]))
def test_packs_of_the_original(about: dict[str, Any]) -> None:
    folder = PackedFolder(FOLDER / about["file"])
    assert folder.num_files() == about["num_files"]
    assert folder.list() == about["list_root"]
    if about["file"] != "packed_many.ffr":  # the manifest leaves that out
        kinds = {"str": str, "PosixPath": PosixPath}
        expected = [(path, kinds[kind]) for path, kind in about["list_recursive"]]
        assert [(str(item), type(item)) for item in folder.list(recursive=True)] == expected


@pytest.mark.parametrize("name", ["packed_badmagic", "basic", "n0", "one"])
def test_what_is_not_packed(name: str) -> None:
    path = FOLDER / f"{name}.ffr"
    with pytest.raises(ValueError) as caught:
        PackedFolder(path)
    assert str(caught.value).startswith(f"{path} is not a packed folder")


def test_only_the_magic_is_not_packed(tmp_path: Path) -> None:
    with anyrecord.create("a.ffr") as out:
        out.write(b"piouhjgbr")
    with pytest.raises(ValueError, match=r"^a.ffr is not a packed folder"):
        PackedFolder("a.ffr")


class Touches:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("listing", [pickle.dumps(Touches()), b"\x80\x04}\x94.", b"garbage", struct.pack("<Q", 0)])
def test_a_hostile_listing_is_a_value_error_and_runs_nothing(listing: bytes) -> None:
    with anyrecord.create("a.ffr") as out:
        out.write(b"piouhjgbr" + listing)
    with pytest.raises(ValueError):
        PackedFolder("a.ffr")
    assert os.listdir() == ["a.ffr"]


def test_damage(folder: PackedFolder, tmp_path: Path) -> None:
    path = tmp_path / "packed.ffr"
    data = bytearray(path.read_bytes())
    data[data.index(b"first")] ^= 1
    path.write_bytes(data)
    with pytest.raises(RuntimeError, match="Sample 0: checksum mismached!"):
        PackedFolder(path).read_one("001.txt")
    assert PackedFolder(path, check_data=False).read_one("001.txt").tobytes() == b"girst"


def test_verbose(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(8):
        (source / f"x{number}").touch()
    pack_folder(source, "packed.ffr", verbose=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12
    assert lines[0] == f"01/12 {source / '001.txt'}"
    assert lines[3] == f"04/12 {source / 'sub' / 'deep' / '4'}"
    pack_folder(source, "packed.ffr")
    assert capsys.readouterr().out == ""


def test_wrong_arguments(source: Path) -> None:
    for bad in (source / "001.txt", source / "nothing"):
        with pytest.raises(AssertionError, match="'folder' must be a directory"):
            pack_folder(bad, "packed.ffr")
    with pytest.raises(AssertionError):
        pack_folder(source, "packed.bin")
    with pytest.raises(RuntimeError, match=r"^'fd > 0' failed. Failed to open file nowhere/packed.ffr"):
        pack_folder(source, "nowhere/packed.ffr")
    with pytest.raises(ValueError, match="inside"):
        pack_folder(source, source / "packed.ffr")


def test_a_file_that_cannot_be_read_publishes_nothing(source: Path, folder: PackedFolder, tmp_path: Path) -> None:
    before = (tmp_path / "packed.ffr").read_bytes()
    (source / "dangling").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        pack_folder(source, tmp_path / "packed.ffr")
    assert (tmp_path / "packed.ffr").read_bytes() == before
