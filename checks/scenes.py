"""What the crash checks do again and again: every way in which the library writes files, in a folder of its own.

A scene has two folders: `sources` is only read, `stage` is changed from an old state to a new one.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyrecord
from anyrecord.compat import recordio as recordio_drop_in
from anyrecord.compat.array_record.python.array_record_module import ArrayRecordWriter
from anyrecord.compat.ffrecord import FileWriter, pack_folder

__all__ = ["SCENES", "Files", "Scene", "Stage", "scene_folder"]

Files = dict[str, bytes | None]
"""Relative paths and contents; None is a folder."""

SUFFIXES = (".ffr", ".array_record", ".recordio", ".tfrecord", ".tfrecord.gz")
HIDDEN = (".tmp", ".old", ".publish", ".published")
"""How the names of files end that are no part of a set."""


@dataclass(frozen=True)
class Scene:
    """A call that changes files."""

    name: str
    prepare: Callable[[Path, Path], object]
    """Makes the sources and the old state; gets both folders."""
    act: Callable[[Path, Path], object]
    """Gets the same folders."""
    read: Callable[[Path], object]
    """Reads what is on the stage, as a user would. Gives what tells old and new apart, or raises."""
    target: str | None = None
    """What `recover` is given, below the stage. None: this call leaves nothing to recover."""
    one_by_one: bool = False
    """Whether files appear one after the other, each of them whole. Else they appear together."""
    again: bool = True
    """Whether the call can be made again after it was successful."""
    durable: bool = True
    short: tuple[str, ...] = ("kills", "faults")
    """The checks whose short forms have this scene."""


class Stage:
    """The folders of a scene, which can be put back to the old state."""

    def __init__(self, root: Path, scene: Scene) -> None:
        self.scene, self.root = scene, root
        self.sources, self.stage = root / "now" / "sources", root / "now" / "stage"
        shutil.rmtree(root, ignore_errors=True)
        # Temporary files of readers go here, so that they are watched too.
        for folder in (self.sources, self.stage, root / "now" / "temporary"):
            folder.mkdir(parents=True)
        scene.prepare(self.sources, self.stage)
        os.rename(root / "now", root / "before")
        self.reset()
        self.old, self.source_files = self.visible(), files_in(self.sources)
        self.before = self.all()
        self.old_read = self.reading()
        scene.act(self.sources, self.stage)
        self.new = self.visible()
        self.after = self.all()
        self.new_read = self.reading()
        self.reset()

    def reset(self) -> None:
        """Makes the old state again."""
        shutil.rmtree(self.root / "now", ignore_errors=True)
        shutil.copytree(self.root / "before", self.root / "now", symlinks=True)

    def act(self) -> None:
        """What is watched. For a child process only."""
        os.environ["TMPDIR"] = str(self.root / "now" / "temporary")
        self.scene.act(self.sources, self.stage)

    def all(self) -> Files:
        """Everything on the stage, and what lies in the folder for temporary files."""
        return files_in(self.stage) | {f"temporary/{k}": v for k, v in files_in(self.root / "now/temporary").items()}

    def visible(self) -> Files:
        """What readers may find on the stage."""
        return {path: found for path, found in files_in(self.stage).items() if not is_hidden(path)}

    def hidden(self) -> list[str]:
        """What is on the stage beside that."""
        return sorted(path for path in self.all() if is_hidden(path) or path.startswith("temporary/"))

    def has_journal(self) -> bool:
        """Whether publishing was interrupted."""
        return any(path.endswith(".publish") for path in self.all())

    def reading(self) -> object:
        """What a reader finds, or `PublishError` or another name of an error with its message."""
        try:
            return self.scene.read(self.stage)
        except FileNotFoundError:
            return "nothing"
        except (anyrecord.RecordError, OSError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"


def is_hidden(path: str) -> bool:
    """Whether readers leave the file out because of its name."""
    return any(part.startswith(".") and part.endswith(HIDDEN) for part in path.split("/"))


def files_in(folder: Path) -> Files:
    """Everything below a folder."""
    found: Files = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = b"-> " + os.fsencode(os.readlink(path))
        else:
            found[name] = None if path.is_dir() else path.read_bytes()
    return found


@contextmanager
def scene_folder() -> Iterator[Path]:
    """An empty folder, in memory if there is such a place: the checks sync thousands of times."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None, prefix="anyrecord-") as name:
        yield Path(name).resolve()


# -- the scenes --

LARGE = [random.Random(number).randbytes(150_000) for number in range(6)]
"""No codec makes them smaller, so that a file takes several writes."""


def records(what: str, large: bool = True) -> list[bytes]:
    """Records that tell which state they are of."""
    return [f"{what} {number}".encode() for number in range(10)] + (LARGE if large else [])


def write(path: Path, what: str, large: bool = True, **keywords: Any) -> None:
    """Writes a file or a set of shards."""
    with anyrecord.create(path, overwrite=True, **keywords) as out:
        out.write_many(records(what, large))


def read_all(pattern: str) -> Callable[[Path], object]:
    """The first word of all records; an error if they are not all of one state."""

    def read(stage: Path) -> object:
        found = list(anyrecord.open(f"{stage}/{pattern}"))
        words = {record[:3] for record in found if len(record) < 10}
        if len(words) > 1:
            raise AssertionError(f"a mixture: {words}")
        return words.pop().decode(), len(found)

    return read


def nothing(*_: Path) -> None:
    """Nothing to prepare."""


def one_file(suffix: str, kind: str, short: tuple[str, ...] = ("kills", "faults"), **keywords: Any) -> Scene:
    name = f"a{suffix}"
    large = "large" not in kind

    def old(_: Path, stage: Path) -> None:
        write(stage / name, "old", durable=False)
        os.chmod(stage / name, 0o640)

    def act(_: Path, stage: Path) -> None:
        with anyrecord.create(stage / name, overwrite="new" not in kind, **keywords) as out:
            out.write_many(records("new"))
            if not large:
                out.write_many(LARGE * 11)  # more than what is collected in memory

    return Scene(
        f"{kind} {suffix}",
        nothing if "new" in kind else old,
        act,
        read_all(name),
        again="new" not in kind,
        durable=keywords.get("durable", True),
        short=short,
    )


def shards(
    name: str, before: dict[str, Any] | None, suffix: str = ".ffr", short: tuple[str, ...] = (), **after: Any
) -> Scene:
    def old(_: Path, stage: Path) -> None:
        if before is not None:
            write(stage / f"train{suffix}", "old", large=False, durable=False, **before)

    return Scene(
        f"{name} {suffix}",
        old,
        lambda _, stage: write(stage / f"train{suffix}", "new", large=False, **after),
        read_all("train-*"),
        target=f"train{suffix}",
        durable=after.get("durable", True),
        short=short,
    )


def linked() -> Scene:
    def old(_: Path, stage: Path) -> None:
        (stage / "real").mkdir()
        write(stage / "real" / "a.ffr", "old", durable=False)
        os.symlink("real/a.ffr", stage / "a.ffr")

    return Scene("a link to a file", old, lambda _, stage: write(stage / "a.ffr", "new"), read_all("a.ffr"), short=())


def converted(name: str, target: str, before: bool, short: tuple[str, ...] = (), **keywords: Any) -> Scene:
    """Three sources become one file, a set of shards, or a folder of three files."""

    def prepare(sources: Path, stage: Path) -> None:
        for source in "abc":
            write(sources / f"{source}.tfrecord", "new", large=False, durable=False)
            if before and not target:
                write(stage / f"{source}.ffr", "old", large=False, durable=False)
        if before and target:
            write(stage / target, "old", durable=False, **old_options)

    options: dict[str, Any] = {} if target else {"format": "ffrecord"}
    old_options: dict[str, Any] = {"shards": 2} if "shards" in keywords else {}
    pattern = target.replace(".", "-*.") if "shards" in keywords else target or "*.ffr"
    is_set = not target or "shards" in keywords
    return Scene(
        name,
        prepare,
        lambda sources, stage: anyrecord.convert(sources, stage / target, overwrite=True, **options, **keywords),
        read_all(pattern),
        target=(target or ".") if is_set else None,
        short=short,
    )


def converted_in_place() -> Scene:
    def prepare(_: Path, stage: Path) -> None:
        for source in "abc":
            write(stage / f"{source}.tfrecord", "old", large=False, durable=False)

    def act(_: Path, stage: Path) -> None:
        anyrecord.convert(
            stage, stage, format="tfrecord", overwrite=True, map=lambda record: b"new" + record[3:], threads=0
        )

    return Scene("convert files to themselves", prepare, act, read_all("*.tfrecord"), target=".", short=())


def tree(folder: Path, what: str) -> None:
    (folder / "below" / "empty").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "below/c.txt"):
        (folder / name).write_text(f"{what} {name}")


def read_packed(stage: Path) -> object:
    with anyrecord.Folder(stage / "packed.ffr") as folder:
        return {folder[name][:3] for name in folder}


def packed(before: bool, pack: Callable[..., object] = anyrecord.pack, **keywords: Any) -> Scene:
    def prepare(sources: Path, stage: Path) -> None:
        tree(sources / "folder", "new")
        if before:
            tree(sources / "other", "old")
            anyrecord.pack(sources / "other", stage / "packed.ffr", durable=False)

    name = "pack" if pack is anyrecord.pack else "pack by the drop-in"
    return Scene(
        f"{name}{' over a file' if before else ''}",
        prepare,
        lambda sources, stage: pack(sources / "folder", stage / "packed.ffr", **keywords),
        read_packed,
        again=before,
        short=("kills",),
    )


def unpacked(before: bool) -> Scene:
    def prepare(sources: Path, stage: Path) -> None:
        tree(sources / "folder", "new")
        anyrecord.pack(sources / "folder", sources / "packed.ffr", durable=False)
        if before:
            tree(stage / "out", "old")
            (stage / "out" / "mine.txt").write_text("old, and not in the packed folder")

    def act(sources: Path, stage: Path) -> None:
        anyrecord.unpack(sources / "packed.ffr", stage / "out", overwrite=before)

    return Scene(
        "unpack into a folder with files" if before else "unpack",
        prepare,
        act,
        lambda stage: (stage / "out" / "a.txt").read_text()[:3],
        one_by_one=before,
        again=before,
    )


def indexed(suffix: str, short: tuple[str, ...] = ()) -> Scene:
    """Two files get an index; a third one has an index that no longer fits."""

    def prepare(_: Path, stage: Path) -> None:
        for name in "abc":
            write(stage / f"{name}{suffix}", "old", large=False, durable=False)
        anyrecord.build_index(stage / f"c{suffix}")
        write(stage / f"c{suffix}", "old", durable=False)

    return Scene(
        f"build_index {suffix}",
        prepare,
        lambda _, stage: anyrecord.build_index(stage),
        read_all(f"*{suffix}"),
        one_by_one=True,
        durable=False,
        short=short,
    )


def dropped_in(name: str, suffix: str, act: Callable[[str], object]) -> Scene:
    """The writer of a drop-in replacement, over an old file."""
    return Scene(
        f"{name} of the drop-in",
        lambda _, stage: write(stage / f"a{suffix}", "old", durable=False),
        lambda _, stage: act(str(stage / f"a{suffix}")),
        read_all(f"a{suffix}"),
        short=(),
    )


def _ffrecord(path: str) -> None:
    with FileWriter(path, len(records("new"))) as out:
        for record in records("new"):
            out.write_one(record)


def _array_record(path: str) -> None:
    out = ArrayRecordWriter(path)
    for record in records("new"):
        out.write(record)
    out.close()


def _recordio(path: str) -> None:
    with recordio_drop_in.Writer(path) as out:
        for record in records("new"):
            out.write(record)


def _all() -> Iterator[Scene]:
    for suffix in SUFFIXES:
        yield one_file(suffix, "over an old file")
        yield one_file(suffix, "new file", short=())
        yield one_file(suffix, "not durable", short=(), durable=False)
    yield one_file(".ffr", "known number", num_records=16)
    yield one_file(".ffr", "large, from a spool", short=())
    yield one_file(".array_record", "two threads", short=(), threads=2)
    yield linked()
    yield shards("first shards", None, shards=3)
    yield shards("as many shards", {"shards": 3}, short=("kills", "faults"), shards=3)
    yield shards("fewer shards", {"shards": 4}, shard_records=5)
    yield shards("more shards", {"shards": 1}, shard_bytes=20)
    yield shards("shards that are not durable", {"shards": 2}, shards=2, durable=False)
    for suffix in SUFFIXES[1:]:
        yield shards("as many shards", {"shards": 2}, suffix, shards=2)
    yield converted("convert to a file", "all.array_record", False, short=("faults",))
    yield converted("convert over a file", "all.ffr", True)
    yield converted("convert to shards", "all.ffr", False, shards=2)
    yield converted("convert over shards", "all.recordio", True, shards=3)
    yield converted("convert to a folder", "", False)
    yield converted("convert over a folder", "", True, short=("kills", "faults"))
    yield converted_in_place()
    yield packed(False)
    yield packed(True, overwrite=True)
    yield packed(True, pack_folder)
    yield unpacked(False)
    yield unpacked(True)
    yield indexed(".tfrecord", short=("kills", "faults"))
    yield indexed(".recordio")
    yield dropped_in("FileWriter", ".ffr", _ffrecord)
    yield dropped_in("ArrayRecordWriter", ".array_record", _array_record)
    yield dropped_in("Writer", ".recordio", _recordio)


SCENES = list(_all())
