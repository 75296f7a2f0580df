"""Publishing a set of files stops at every change that it makes: readers never see a mixture, and recover helps."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyrecord
import pytest
from anyrecord import PublishError

from writing.folders import names
from writing.stopping import GO_ON, KILL, OPENS, RENAMES, can_stop, stop_at_each

pytestmark = [
    pytest.mark.skipif(not can_stop(), reason="the system has no seccomp notification"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]

Files = dict[str, bytes]


@dataclass(frozen=True)
class Scene:
    """An old set, and a new one that replaces it."""

    prepare: Callable[[Path], object]
    publish: Callable[[Path], object]
    target: str
    """What `recover` is given."""
    sources: tuple[str, ...]
    """What readers call the sets, besides the folder."""


def write(path: Path, what: str, **keywords: Any) -> None:
    """Ten records that tell which set they are of."""
    with anyrecord.create(path, overwrite=True, **keywords) as out:
        out.write_many(f"{what} {number}".encode() for number in range(10))


def shards(before: dict[str, Any] | None, after: dict[str, Any], counts: Iterable[int]) -> Scene:
    return Scene(
        prepare=lambda folder: None if before is None else write(folder / "train.ffr", "old", durable=False, **before),
        publish=lambda folder: write(folder / "train.ffr", "new", **after),
        target="train.ffr",
        sources=(
            *(f"train.ffr@{count}" for count in counts),
            *(f"train@{count}" for count in counts),
            "train-*",
            "*.ffr",
            "**/*.ffr",
            "**",
        ),
    )


def convert_to_folder(before: bool) -> Scene:
    def prepare(folder: Path) -> None:
        sources = folder.parent / "sources"
        sources.mkdir(exist_ok=True)
        for name in ("a", "b", "c"):
            if before:
                write(folder / f"{name}.ffr", "old", durable=False)
            write(sources / f"{name}.tfrecord", "new", durable=False)

    return Scene(
        prepare=prepare,
        publish=lambda folder: anyrecord.convert(folder.parent / "sources", folder, format="ffrecord", overwrite=True),
        target=".",
        sources=("*.ffr", "[abc].*"),
    )


SCENES: dict[str, Scene] = {
    "first set": shards(None, {"shards": 3}, [3]),
    "as many shards": shards({"shards": 3}, {"shards": 3}, [3]),
    "fewer shards": shards({"shards": 4}, {"shard_records": 5}, [2, 4]),
    "more shards": shards({"shards": 1}, {"shard_bytes": 20}, [1, 4]),
    "first files": convert_to_folder(False),
    "as many files": convert_to_folder(True),
}


@pytest.fixture(params=SCENES.values(), ids=list(SCENES))
def scene(request: pytest.FixtureRequest) -> Scene:
    found: Scene = request.param
    return found


class Stage:
    """A folder in which a scene is played again and again."""

    def __init__(self, folder: Path, scene: Scene) -> None:
        self.scene, self.folder = scene, folder
        self.new = self.reset()
        scene.publish(self.folder)
        self.new = self.visible()
        self.old = self.reset()

    def reset(self) -> Files:
        """Back to the old set, which is returned."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.scene.prepare(self.folder)
        return self.visible()

    def all(self) -> Files:
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def visible(self) -> Files:
        return {name: data for name, data in self.all().items() if not name.startswith(".")}

    def has_journal(self) -> bool:
        return any(name.endswith(".publish") for name in self.all())

    def publish(self, decide: Callable[[int, str], int]) -> int | None:
        """Publishes in a child, which is stopped at every change in the folder."""

        def publish() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that something could not be deleted; it is on disk for all to see
                self.scene.publish(self.folder)

        return stop_at_each(publish, decide)

    def recover(self, keep: Literal["old", "new"]) -> anyrecord.Recovered:
        return anyrecord.recover(self.folder / self.scene.target, keep=keep)

    def changes(self) -> int:
        """How many changes it takes to publish, once everything is written."""
        calls: list[str] = []

        def listen(number: int, call: str) -> int:
            calls.append(call)
            return GO_ON

        assert self.publish(listen) == 0
        assert self.all() == self.new
        self.reset()
        return len(calls)

    def check_readers(self, when: str) -> None:
        """Whoever reads gets the whole old set, the whole new one, or a PublishError that says what to do."""
        assert self.visible().items() <= self.old.items() or self.visible().items() <= self.new.items(), when
        if not self.has_journal():
            assert self.visible() in (self.old, self.new), when
        sources: list[Any] = [str(self.folder), *(f"{self.folder}/{source}" for source in self.scene.sources)]
        for names_of in (self.old, self.new):
            sources += [[str(self.folder / name) for name in sorted(names_of)]] if names_of else []
            sources += [f"{self.folder / name}[0:1]" for name in sorted(names_of)]
        for source in sources:
            self.check_reader(source, f"{when}, {source}")

    def check_reader(self, source: Any, when: str) -> None:
        is_range = isinstance(source, str) and source.endswith("[0:1]")
        for read in (list_of, info_of, verified, converted):
            if is_range and read is not list_of:
                continue
            try:
                found = read(source)
            except PublishError as error:
                assert self.has_journal(), when
                check_message(error)
            except FileNotFoundError:
                # A name that only the other set has.
                assert not self.has_journal(), when
                assert self.visible() in (self.old, self.new), when
            else:
                sets = {"old", "new"} if is_range else {what_is_in(self.old), what_is_in(self.new)}
                assert found in sets or found == 1, f"{when}: {found}"


def check_message(error: PublishError) -> None:
    """It says what happened, where, and what to do."""
    assert str(error.path).endswith(".publish")
    for words in ("is being published", "was interrupted", str(error.path), "anyrecord.recover(", "new", "old"):
        assert words in str(error)


def what_is_in(files: Files) -> int:
    """How many records the files of a set have together."""
    return sum(len(anyrecord.open(data)) for data in files.values())


def list_of(source: Any) -> object:
    records = list(anyrecord.open(source))
    assert len({record[:3] for record in records}) == 1, "a mixture"
    return len(records)


def info_of(source: Any) -> object:
    return anyrecord.info(source).records


def verified(source: Any) -> object:
    return anyrecord.verify(source).records


def converted(source: Any) -> object:
    return anyrecord.convert(source, "converted.tfrecord", overwrite=True, durable=False, verify=False).records


@pytest.fixture
def stage(scene: Scene) -> Iterator[Stage]:
    """In memory, where there is such a place: these tests sync a thousand times."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Stage(Path(folder) / "stage", scene)


@pytest.mark.parametrize("keep", ["old", "new"])
def test_a_kill_at_any_change_leaves_one_whole_set_or_a_clear_error_and_recover_gives_either(
    stage: Stage, keep: Literal["old", "new"]
) -> None:
    interrupted = 0
    for at in range(stage.changes()):
        when = f"killed at change {at}"
        stage.reset()
        assert stage.publish(lambda number, call: KILL if number == at else GO_ON) is None  # noqa: B023
        stage.check_readers(when)
        if stage.has_journal():
            interrupted += 1
            kept = stage.old if keep == "old" else stage.new
            done = stage.recover(keep)
            assert (done.interrupted, done.kept, len(done.paths)) == (True, keep, len(kept)), when
            assert {Path(path).name for path in done.paths} == kept.keys(), when
            assert stage.visible() == kept, when
        # Now no publish is to be recovered; what is left of a set that was published is deleted, and temporary files.
        assert not stage.recover(keep).interrupted, when
        assert not [name for name in stage.all() if name.startswith(".")], when
        stage.check_readers(when)
    assert interrupted >= len(stage.old) + len(stage.new)


def test_readers_at_any_moment_of_a_living_process_get_one_whole_set_or_are_told_to_try_again(stage: Stage) -> None:
    refused = 0

    def look(number: int, call: str) -> int:
        nonlocal refused
        stage.check_readers(f"before change {number}")
        if stage.has_journal():
            refused += 1
            before = stage.all()
            for keep in ("old", "new"):
                with pytest.raises(PublishError, match="is being published by a running process"):
                    anyrecord.recover(stage.folder / stage.scene.target, keep=keep)
            assert stage.all() == before
        return GO_ON

    assert stage.publish(look) == 0
    assert stage.all() == stage.new
    assert refused >= len(stage.old) + len(stage.new)


def test_an_error_at_any_change_leaves_the_old_set_or_the_new_one(stage: Stage) -> None:
    failures = 0
    for at in range(stage.changes()):
        stage.reset()
        failed = ""

        def decide(number: int, call: str) -> int:
            nonlocal failed
            failed = call if number == at else failed  # noqa: B023
            return errno.EIO if number == at else GO_ON  # noqa: B023

        code = stage.publish(decide)
        assert code in (0, 1)
        failures += code
        # The new set is visible before its folder is synced for the last time; that this failed is an error too.
        published = not code or (failed == "fsync" and stage.visible() == stage.new)
        assert stage.visible() == (stage.new if published else stage.old), f"failed at change {at}"
        assert not stage.has_journal(), f"failed at change {at}"
        stage.check_readers(f"failed at change {at}")
    assert failures > len(stage.new)


def test_renames_that_fail_from_some_point_on_are_a_clear_error_until_recover_can_work_again(stage: Stage) -> None:
    unfinished = 0
    for at in range(stage.changes()):
        for keep in ("old", "new"):
            stage.reset()
            decide = lambda number, call: errno.EIO if number >= at and call in RENAMES else GO_ON  # noqa: B023, E731
            code = stage.publish(decide)
            stage.check_readers(f"all renames fail from change {at} on")
            assert code == 1 or stage.visible() == stage.new
            if stage.has_journal():
                unfinished += 1
                stage.recover(keep)
                assert stage.visible() == (stage.old if keep == "old" else stage.new)
    assert unfinished > len(stage.new)


def test_a_file_system_without_links_and_exclusive_renames_will_do(stage: Stage) -> None:
    refusals = {"link": errno.EPERM, "linkat": errno.EPERM, "renameat2": errno.EINVAL}
    for refused in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
        stage.reset()
        answers = {**refusals, "renameat2": refused}
        assert stage.publish(lambda number, call: answers.get(call, GO_ON)) == 0  # noqa: B023
        assert stage.all() == stage.new


@pytest.mark.parametrize("refused", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_one_file_appears_without_links_and_exclusive_renames_and_replaces_nothing(
    tmp_path: Path, suffix: str, refused: int
) -> None:
    path = tmp_path / f"a{suffix}"

    def create() -> None:
        with anyrecord.create(path) as out:
            out.write(b"new")
            if late:
                path.write_bytes(b"somebody else's")

    def decide(number: int, call: str) -> int:
        return {"link": errno.EPERM, "linkat": errno.EPERM, "renameat2": refused}.get(call, GO_ON)

    late = False
    assert stop_at_each(create, decide) == 0
    assert list(anyrecord.open(path)) == [b"new"]
    path.unlink()
    late = True
    assert stop_at_each(create, decide) == 1
    assert path.read_bytes() == b"somebody else's"
    assert names(tmp_path) == [path.name]


READERS: dict[str, Callable[[str], object]] = {
    "open": lambda source: same_set(anyrecord.open(source)),
    "open mapped": lambda source: same_set(anyrecord.open(source, io="map")),
    "open one by one": lambda source: same_set(anyrecord.open(source, limits=anyrecord.Limits(open_files=1))),
    "convert": lambda source: same_set(anyrecord.open(convert_in_memory(source))),
    "verify": lambda source: anyrecord.verify(source),
}


def same_set(records: anyrecord.Records) -> None:
    found = list(records)
    assert len({record[:3] for record in found}) == 1, "a mixture"
    assert len(found) == 10


def convert_in_memory(source: str) -> str:
    target = f"{os.path.dirname(source)}/../converted.tfrecord"
    anyrecord.convert(source, target, overwrite=True, durable=False, verify=False)
    return target


@pytest.mark.parametrize("read", READERS.values(), ids=list(READERS))
@pytest.mark.parametrize("source", ["train.ffr@3", "train-*", ""])
@pytest.mark.parametrize("count", [3, 2])
def test_a_set_that_is_replaced_between_two_files_that_a_reader_opens_is_never_mixed(
    tmp_path: Path, read: Callable[[str], object], source: str, count: int
) -> None:
    folder = tmp_path / "stage"
    folder.mkdir()
    path, opens, at = folder / "train.ffr", 0, None
    source = f"{folder}/{source}"

    def act() -> None:
        try:
            read(source)
        except FileNotFoundError:  # a name that the new set does not have
            assert (count, os.path.basename(source)) == (2, "train.ffr@3")
        except anyrecord.RecordError as error:
            # The second one is about a file that was opened again.
            if not re.search("replaced while it was read|changed", str(error)):
                raise

    write(path, "old", shards=3, durable=False)
    read(source)  # all modules are imported, so that only the files are opened

    def decide(number: int, call: str) -> int:
        nonlocal opens
        opens = max(opens, number + 1) if at is None else opens
        if number == at:
            write(path, "new", shards=count, durable=False)
        return GO_ON

    assert stop_at_each(act, decide, OPENS) == 0
    assert opens >= 3
    for at in range(opens):
        write(path, "old", shards=3, durable=False)
        assert stop_at_each(act, decide, OPENS) == 0, f"replaced before file {at} of {opens} was opened"
