"""`Folder.unpack`: everything or nothing, and never outside of the target."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import anyrecord
import pytest


def contents(root: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def test_unpacking_gives_the_folder_back(packed: Path, tree: Path, tmp_path: Path) -> None:
    anyrecord.Folder(packed).unpack(tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tree)
    assert sorted(os.listdir(tmp_path)) == ["out", "tree", "tree.ffr"]
    ordinary = tmp_path / "ordinary"
    ordinary.mkdir()
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


def test_an_empty_target_is_filled(packed: Path, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    anyrecord.Folder(packed).unpack(tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tree)


def test_a_target_with_files_is_refused_unless_overwrite(packed: Path, tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "a").mkdir(parents=True)
    (out / "a" / "one.bin").write_bytes(b"old")
    (out / "mine").write_bytes(b"keep")
    before = contents(out)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        anyrecord.Folder(packed).unpack(out)
    assert contents(out) == before
    anyrecord.Folder(packed).unpack(out, overwrite=True)
    assert contents(out) == {**contents(tree), "mine": b"keep"}
    assert sorted(os.listdir(tmp_path)) == ["out", "tree", "tree.ffr"]


def test_a_file_as_target_is_refused(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"mine")
    for overwrite in (False, True):
        with pytest.raises(NotADirectoryError):
            anyrecord.Folder(packed).unpack(tmp_path / "out", overwrite=overwrite)
    assert (tmp_path / "out").read_bytes() == b"mine"


def test_links_inside_the_target_are_never_followed(packed: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_bytes(b"safe")
    out = tmp_path / "out"
    out.mkdir()
    (out / "a").symlink_to(outside, target_is_directory=True)
    with pytest.raises(FileExistsError, match="link"):
        anyrecord.Folder(packed).unpack(out, overwrite=True)
    assert contents(outside) == {"victim": b"safe"}
    assert os.listdir(out) == ["a"]
    (out / "a").unlink()
    (out / "Z").symlink_to(outside / "victim")  # a link where a file goes is replaced itself
    anyrecord.Folder(packed).unpack(out, overwrite=True)
    assert (outside / "victim").read_bytes() == b"safe"
    assert not (out / "Z").is_symlink()
    assert (out / "Z").read_bytes() == b"zed"


def test_a_folder_in_the_way_of_a_file_is_refused(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "Z").mkdir(parents=True)
    with pytest.raises(FileExistsError, match="cannot create a file: a folder has its name"):
        anyrecord.Folder(packed).unpack(tmp_path / "out", overwrite=True)
    assert contents(tmp_path / "out") == {"Z": None}


def test_a_file_in_the_way_of_a_folder_is_refused(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="cannot create a folder: a file has its name"):
        anyrecord.Folder(packed).unpack(tmp_path / "out", overwrite=True)
    assert contents(tmp_path / "out") == {"a": b"mine"}


def test_a_link_as_the_target_is_the_callers_choice(packed: Path, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    anyrecord.Folder(packed).unpack(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert contents(tmp_path / "real") == contents(tree)


@pytest.mark.parametrize("overwrite", [False, True])
def test_damage_leaves_the_target_as_it_was(packed: Path, tmp_path: Path, overwrite: bool) -> None:
    data = bytearray(packed.read_bytes())
    data[data.index(b"bee")] ^= 1
    packed.write_bytes(data)
    if overwrite:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "Z").write_bytes(b"old")
    before = contents(tmp_path)
    with pytest.raises(anyrecord.ChecksumError):
        anyrecord.Folder(packed).unpack(tmp_path / "out", overwrite=overwrite)
    assert contents(tmp_path) == before


def test_an_interrupt_leaves_nothing(packed: Path, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    before = contents(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        anyrecord.Folder(packed).unpack(tmp_path / "out", progress=interrupt)
    assert contents(tmp_path) == before


def test_progress_counts_bytes(packed: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    folder = anyrecord.Folder(packed)
    folder.unpack(tmp_path / "out", progress=lambda *call: calls.append(call))
    total = sum(map(len, folder.values()))
    assert calls[-1] == (total, total)
    assert len(calls) == len(folder)


def test_an_empty_folder_unpacks_to_one(golden: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    folder = anyrecord.Folder(golden / "ffrecord" / "packed_empty.ffr")
    folder.unpack(tmp_path / "out", progress=lambda *call: calls.append(call))
    assert contents(tmp_path / "out") == {}
    assert calls == [(0, 0)]


def test_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: Path, tree: Path) -> None:
    monkeypatch.setattr("anyrecord._unpacking._BATCH_BYTES", 4)
    monkeypatch.setattr("anyrecord._unpacking._BATCH_FILES", 2)
    anyrecord.Folder(packed).unpack(tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tree)


def test_a_missing_parent_is_an_error(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        anyrecord.Folder(packed).unpack(tmp_path / "nowhere" / "out")


def test_records_in_any_order(tmp_path: Path, pack_with: Callable[..., Path]) -> None:
    import pickle
    from collections import OrderedDict

    path = pack_with(pickle.dumps(OrderedDict(a=2, b=OrderedDict(c=0), d=1)), [b"zero", b"one", b"two"])
    anyrecord.Folder(path).unpack(tmp_path / "out")
    assert contents(tmp_path / "out") == {"a": b"two", "b": None, "b/c": b"zero", "d": b"one"}


def test_unpack_beside_pack_does_what_the_folder_does(packed: Path, tree: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    anyrecord.unpack(packed, tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    assert contents(tmp_path / "out") == contents(tree)
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] > 0
    with pytest.raises(FileExistsError, match="overwrite=True"):
        anyrecord.unpack(str(packed), tmp_path / "out")
    anyrecord.unpack(str(packed), tmp_path / "out", overwrite=True)
    with pytest.raises(TypeError, match="colour"):
        anyrecord.unpack(packed, tmp_path / "other", colour="red")  # type: ignore[call-arg]
    plain = tmp_path / "plain.ffr"
    with anyrecord.create(plain) as out:
        out.write(b"no listing")
    with pytest.raises(anyrecord.FormatError, match="not a packed folder"):
        anyrecord.unpack(plain, tmp_path / "other")
    with pytest.raises(ValueError, match="is a URL"):
        anyrecord.unpack(packed, "gs://bucket/folder")
    with pytest.raises(ValueError, match="pass a URL as a str"):
        anyrecord.unpack(packed, Path("gs://bucket/folder"))
    assert not (tmp_path / "other").exists()
