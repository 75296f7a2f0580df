"""`recover`, and what may be done before it: publishing that was interrupted is told to whoever comes by."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import PublishError, Recovered, _core
from children import LIMIT_SECONDS

from writing.folders import names, temporary
from writing.stopping import GO_ON, can_stop, kill_at_rename, stop_at_each

pytestmark = [
    pytest.mark.skipif(not can_stop(), reason="the system has no seccomp notification"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]


def write(path: Path | str, what: bytes, **keywords: Any) -> None:
    with anyrecord.create(path, overwrite=True, durable=False, **keywords) as out:
        out.write_many(b"%s %d" % (what, number) for number in range(6))


def no_record_is_read(record: bytes) -> bytes:
    raise AssertionError("what cannot be written is refused before anything is read")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A set of two shards that a set of three did not quite replace: the journal, one old file, then a kill."""
    path = tmp_path / "train.ffr"
    write(path, b"old", shards=2)
    kill_at_rename(lambda: write(path, b"new", shards=3), 2)
    assert ".train.ffr.publish" in names(tmp_path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which two of three files were not quite replaced."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a", "b", "c"):
        write(f"{name}.tfrecord", b"new")
        write(folder / f"{name}.ffr", b"old")
    kill_at_rename(lambda: anyrecord.convert("*.tfrecord", folder, format="ffrecord", overwrite=True), 5)
    assert ".anyrecord-folder.publish" in names(folder)
    return folder


def test_what_was_done_is_told(path: Path) -> None:
    done = anyrecord.recover(path, keep="new")
    shards = tuple(str(path.with_name(f"train-0000{number}-of-00003.ffr")) for number in range(3))
    assert done == Recovered(interrupted=True, kept="new", paths=shards)
    assert done
    again = anyrecord.recover(path, keep="new")
    assert again == Recovered(interrupted=False, kept=None, paths=())
    assert not again
    assert names(path.parent) == [Path(shard).name for shard in shards]


def test_a_first_set_that_is_taken_back_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "first.ffr"
    kill_at_rename(lambda: write(path, b"new", shards=3), 2)
    with pytest.raises(PublishError):
        anyrecord.open(f"{path}@3")
    assert anyrecord.recover(path, keep="old") == Recovered(interrupted=True, kept="old", paths=())
    assert names(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        anyrecord.open(f"{path}@3")


def test_files_that_are_converted_into_a_folder_are_recovered_by_the_name_of_the_folder(folder: Path) -> None:
    for source in (folder, folder / "*.ffr", [folder / "a.ffr", folder / "b.ffr", folder / "c.ffr"]):
        with pytest.raises(PublishError, match=rf"anyrecord\.recover\(\"{folder}\""):
            anyrecord.open(str(source) if isinstance(source, Path) else source)
    done = anyrecord.recover(f"{folder}/", keep="old")
    assert done.paths == tuple(str(folder / f"{name}.ffr") for name in ("a", "b", "c"))
    assert {record[:3] for record in anyrecord.open(folder)} == {b"old"}
    assert names(folder) == ["a.ffr", "b.ffr", "c.ffr"]


def test_a_name_relative_to_the_working_directory_will_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with pytest.raises(PublishError, match=r"anyrecord\.recover\(\"train.ffr\""):
        anyrecord.open("train.ffr@3")
    assert anyrecord.recover("train.ffr", keep="old")
    assert len(anyrecord.open("train.ffr@2")) == 6


@pytest.mark.parametrize(
    "name",
    ["train-00000-of-00002.ffr", "train-00002-of-00003.ffr", "", "train.ffr@2", "train.ffr@3", "train-*", "*.ffr"],
)
def test_another_name_for_the_set_is_an_error_that_tells_the_right_one(path: Path, name: str) -> None:
    before = names(path.parent)
    with pytest.raises(PublishError, match=rf"anyrecord\.recover\(\"{path}\""):
        anyrecord.recover(path.parent / name, keep="new")
    assert names(path.parent) == before


def test_a_set_is_not_found_by_its_plain_name_before_it_is_recovered(path: Path) -> None:
    with pytest.raises(PublishError):
        anyrecord.open(path)


def test_other_sets_and_files_in_the_folder_are_read_as_ever(path: Path) -> None:
    write(path.with_name("other.ffr"), b"abc", shards=2)
    write(path.with_name("alone.ffr"), b"abc")
    for source in ("other.ffr@2", "other-*", "alone.ffr", "alone.ffr[1:3]", "[a-o]*.ffr"):
        assert {record[:3] for record in anyrecord.open(f"{path.parent}/{source}")} == {b"abc"}
    with pytest.raises(FileNotFoundError):
        anyrecord.open(path.with_name("missing.ffr"))
    with pytest.raises(PublishError):
        anyrecord.open(path.parent)


def test_names_of_any_characters_are_published_and_recovered(tmp_path: Path) -> None:
    for name in (
        "tr ain%.ffr",
        "line\nbreak\ttab.ffr",
        "日本é.ffr",
        "new old end.ffr",
        os.fsdecode(b"\xff\x80%ff.ffr"),
    ):
        path = tmp_path / name
        for keep in ("old", "new"):
            write(path, b"old", shards=2)
            kill_at_rename(lambda path=path: write(path, b"new", shards=2), 4)  # type: ignore[misc]
            with pytest.raises(PublishError):
                anyrecord.open(f"{path}@2")
            assert anyrecord.recover(path, keep=keep)
            assert {record[:3].decode() for record in anyrecord.open(f"{path}@2")} == {keep}
    assert len(names(tmp_path)) == 10


def test_a_hidden_file_of_another_program_is_no_journal(tmp_path: Path) -> None:
    write("train.ffr", b"old", shards=2)
    for name in (".publish", ".npm.publish"):
        (tmp_path / name).write_text("something else")
    assert len(anyrecord.open(".")) == len(anyrecord.open("train-*")) == len(anyrecord.open("train.ffr@2")) == 6
    write("train.ffr", b"new", shards=2)
    assert not anyrecord.recover("train.ffr", keep="old")
    assert names(tmp_path) == [".npm.publish", ".publish", "train-00000-of-00002.ffr", "train-00001-of-00002.ffr"]


def test_a_folder_that_is_gone_at_the_end_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    out = anyrecord.create(folder / "train.ffr", shards=2)
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError) as caught:
        out.close()
    assert caught.value.filename == str(folder / "train.ffr")


@pytest.mark.parametrize(
    ("which", "refused", "code"), [(2, errno.EINVAL, 0), (2, errno.EIO, 1), (1, errno.EINVAL, 1), (1, errno.EIO, 1)]
)
def test_a_file_must_be_synced_and_a_folder_only_where_the_file_system_can(
    tmp_path: Path, which: int, refused: int, code: int
) -> None:
    syncs = 0

    def publish() -> None:
        with anyrecord.create(tmp_path / "a.ffr") as out:
            out.write(b"a")

    def decide(number: int, call: str) -> int:
        nonlocal syncs
        syncs += call == "fsync"
        return refused if call == "fsync" and syncs == which else GO_ON

    assert stop_at_each(publish, decide) == code
    assert syncs == which


def test_many_that_publish_one_set_at_once_take_turns_and_readers_never_see_a_mixture(tmp_path: Path) -> None:
    path = tmp_path / "train.ffr"
    write(path, b"000", shards=2)

    def publish(writer: int) -> None:
        for number in range(20):
            write(path, b"%d%02d" % (writer, number), shards=1 + (writer + number) % 3)

    def read() -> int:
        seen = 0
        while not all(writer.done() for writer in writers) or seen == 0:
            with suppress(PublishError):
                assert len({record[:3] for record in anyrecord.open(f"{tmp_path}/train-*")}) == 1
                seen += 1
        return seen

    with ThreadPoolExecutor(5) as pool:
        writers = [pool.submit(publish, writer) for writer in range(1, 4)]
        readers = [pool.submit(read) for _ in range(2)]
        for writer in writers:
            writer.result(LIMIT_SECONDS)
        for reader in readers:
            assert reader.result(LIMIT_SECONDS) > 0
    assert len({record[:3] for record in anyrecord.open(tmp_path)}) == 1
    assert not [name for name in names(tmp_path) if name.startswith(".")]


WRONG: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: anyrecord.recover("a.ffr", keep="both"), ValueError, "keep='both' is not valid"),  # type: ignore[arg-type]
    (
        lambda: anyrecord.recover("a.ffr", salvage_to="gs://bucket/b.ffr"),
        ValueError,
        "only a local path is possible",
    ),
    (lambda: anyrecord.recover(b"a.ffr", keep="old"), TypeError, "str"),  # type: ignore[arg-type]
    (lambda: anyrecord.recover("hdfs://host/a.ffr", keep="old"), ValueError, 'the scheme "hdfs"'),
    (lambda: anyrecord.recover("memory://a.ffr", salvage_to="b.ffr"), ValueError, "salvage_to= is for local files"),
    (lambda: anyrecord.recover(Path("gs://bucket/a.ffr"), keep="old"), ValueError, "pass a URL as a str"),
]


@pytest.mark.parametrize(("call", "error", "says"), WRONG)
def test_wrong_arguments_are_refused(call: Callable[[], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_nothing_can_be_written_to_a_set_before_it_is_recovered(path: Path) -> None:
    before = names(path.parent)
    calls: list[Callable[[], object]] = [
        lambda: anyrecord.create(path, shards=3),
        lambda: anyrecord.create(path, shards=3, overwrite=True),
        lambda: anyrecord.create(path, shard_records=1, overwrite=True),
        lambda: anyrecord.convert("source.tfrecord", path, shards=3, map=no_record_is_read),
        lambda: anyrecord.convert("source.tfrecord", path, shards=3, overwrite=True, map=no_record_is_read),
    ]
    write("source.tfrecord", b"new")
    for call in calls:
        with pytest.raises(PublishError, match="was interrupted"):
            call()
    assert [name for name in names(path.parent) if name != "source.tfrecord"] == before
    anyrecord.recover(path, keep="old")
    write(path, b"new", shards=1)
    assert {record[:3] for record in anyrecord.open(f"{path}@1")} == {b"new"}


def test_nothing_can_be_written_over_files_of_a_folder_before_it_is_recovered(folder: Path) -> None:
    with pytest.raises(PublishError, match="was interrupted"):
        anyrecord.create(folder / "a.ffr", overwrite=True)
    with pytest.raises(PublishError, match="was interrupted"):
        anyrecord.convert("*.tfrecord", folder, format="ffrecord", overwrite=True, map=no_record_is_read)
    write(folder / "other.ffr", b"abc")
    anyrecord.recover(folder, keep="new")
    assert names(folder) == ["a.ffr", "b.ffr", "c.ffr", "other.ffr"]
    write(folder / "a.ffr", b"abc")


def test_a_writer_that_finds_an_interrupted_set_at_its_end_can_be_closed_after_recover(tmp_path: Path) -> None:
    path = tmp_path / "train.ffr"
    out = anyrecord.create(path, shards=2, overwrite=True)
    out.write_many([b"mine"] * 2)
    kill_at_rename(lambda: write(path, b"new", shards=3), 2)
    with pytest.raises(PublishError, match="was interrupted"):
        out.close()
    assert len(temporary(tmp_path)) >= 2
    anyrecord.recover(path, keep="old")
    out.close()
    assert list(anyrecord.open(f"{path}@2")) == [b"mine"] * 2
    assert names(tmp_path) == ["train-00000-of-00002.ffr", "train-00001-of-00002.ffr"]


def test_a_writer_that_could_not_be_closed_and_is_dropped_warns_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.ffr"
    out = anyrecord.create(path, shards=2, overwrite=True)
    kill_at_rename(lambda: write(path, b"new", shards=3), 2)
    before = temporary(tmp_path)
    with pytest.raises(PublishError):
        out.close()
    with pytest.warns(RuntimeWarning, match="nothing was published"):
        del out
    assert len(temporary(tmp_path)) == len(before) - 2


@pytest.mark.parametrize("keep", ["old", "new"])
def test_a_damaged_journal_is_an_error_for_readers_writers_and_recover(path: Path, keep: Any) -> None:
    journal = path.with_name(".train.ffr.publish")
    journal.write_bytes(journal.read_bytes()[:-5])
    before = names(path.parent)
    for call in (
        lambda: anyrecord.open(f"{path}@3"),
        lambda: anyrecord.open(path.parent),
        lambda: anyrecord.create(path, shards=2, overwrite=True),
        lambda: anyrecord.recover(path, keep=keep),
    ):
        with pytest.raises(PublishError) as caught:
            call()
        assert caught.value.path == str(journal)
    assert names(path.parent) == before


def test_files_that_were_deleted_meanwhile_are_named_and_the_other_set_can_be_kept(path: Path) -> None:
    (hidden,) = (name for name in names(path.parent) if name.endswith(".old"))
    path.with_name(hidden).unlink()
    before = names(path.parent)
    with pytest.raises(PublishError, match=r"of the old set is missing .*; call recover with keep=.new") as caught:
        anyrecord.recover(path, keep="old")
    assert os.path.basename(str(caught.value.path)) == hidden
    assert names(path.parent) == before
    assert anyrecord.recover(path, keep="new")
    assert {record[:3] for record in anyrecord.open(f"{path}@3")} == {b"new"}


def test_what_cannot_be_deleted_after_publishing_is_a_warning_and_the_set_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.ffr"
    write(path, b"old", shards=2)
    publish = _core.publish_set
    monkeypatch.setattr(_core, "publish_set", lambda *arguments: publish(*arguments) or "cannot delete x")
    with pytest.warns(RuntimeWarning, match="hidden files of the old set could not be deleted: cannot delete x"):
        write(path, b"new", shards=3)
    assert {record[:3] for record in anyrecord.open(f"{path}@3")} == {b"new"}
