"""Temporary files of killed writers: the next writer and `recover` remove them. Those of living writers stay."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import PublishError, _core, _temporaries
from children import LIMIT_SECONDS, Forked, forked

from writing.folders import names, temporary
from writing.killed import die, killed, left_behind, living
from writing.stopping import GO_ON, KILL, can_stop, kill_at_rename, stop_at_each

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]
needs_stops = pytest.mark.skipif(not can_stop(), reason="the system has no seccomp notification")

RECORDS = [os.urandom(1000) for _ in range(3)] + [os.urandom(1_000_000) for _ in range(12)]

SETTINGS: dict[str, dict[str, Any]] = {
    "one": {},
    "counted": {"num_records": len(RECORDS)},
    "threads": {"threads": 2},
    "turns": {"shards": 3},
    "filled": {"shard_records": 2},
}

WAIT_IN_MEMORY = [
    *[(".recordio", keywords) for keywords in SETTINGS.values()],
    *[(".ffr", SETTINGS[name]) for name in ("threads", "turns", "filled")],
]
"""Cases in which a killed writer of these records has not written any to its file."""


@pytest.fixture
def path(tmp_path: Path, suffix: str) -> Path:
    return tmp_path / f"train{suffix}"


def write(path: Path | str, **keywords: Any) -> None:
    with anyrecord.create(path, overwrite=True, durable=False, **keywords) as out:
        out.write_many(RECORDS)


def states(done: anyrecord.Recovered) -> set[str]:
    return {found.state for found in done.temporaries}


@pytest.mark.parametrize("keywords", SETTINGS.values(), ids=list(SETTINGS))
def test_the_next_writer_tells_of_them_and_removes_them_when_it_has_published(
    path: Path, keywords: dict[str, Any]
) -> None:
    left_behind(path, RECORDS, **keywords)
    left = temporary(path.parent)
    assert left
    assert left == names(path.parent)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        out = anyrecord.create(path, **keywords)
    # What waited in memory is lost: a few samples of each file, or a chunk.
    with_records = [name for name in left if (path.parent / name).stat().st_size > 0]
    assert len(told) == (1 if with_records else 0)
    for one in told:
        assert one.category is RuntimeWarning
        assert one.filename == __file__
        assert any(name in str(one.message) for name in with_records)
        assert "anyrecord.recover(" in str(one.message)
    assert with_records or (path.suffix, keywords) in WAIT_IN_MEMORY
    out.write_many(RECORDS)
    assert set(left) <= set(names(path.parent)), "if the new writer is killed too, nothing is lost"
    out.close()
    assert sorted(names(path.parent)) == sorted(os.path.basename(name) for name in out.paths)
    assert sorted(record for name in out.paths for record in anyrecord.open(name)) == sorted(RECORDS)


@pytest.mark.parametrize("how", ["discarded", "failed", "refused"])
def test_a_writer_that_publishes_nothing_removes_nothing(tmp_path: Path, how: str) -> None:
    path = tmp_path / "train.tfrecord"
    left_behind(path, RECORDS)
    left = names(tmp_path)
    with pytest.warns(RuntimeWarning, match="was killed"):
        out = anyrecord.create(path)
    if how == "refused":
        path.write_bytes(b"somebody else's")
        with pytest.raises(FileExistsError):
            out.close()
        path.unlink()
    elif how == "failed":
        with pytest.raises(LookupError), out:
            raise LookupError
    else:
        out.discard()
    assert names(tmp_path) == left


def test_a_warning_that_is_an_error_creates_nothing(tmp_path: Path) -> None:
    left_behind(tmp_path / "train.tfrecord", RECORDS)
    left = names(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            anyrecord.create(tmp_path / "train.tfrecord")
    assert names(tmp_path) == left


def test_files_without_any_records_are_removed_without_a_word(tmp_path: Path) -> None:
    left_behind(tmp_path / "train.tfrecord", [b"in memory"])
    assert len(temporary(tmp_path)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(tmp_path / "train.tfrecord")
    assert names(tmp_path) == ["train.tfrecord"]


@pytest.mark.parametrize("keywords", SETTINGS.values(), ids=list(SETTINGS))
def test_recover_removes_them_or_lists_them(path: Path, keywords: dict[str, Any]) -> None:
    write(path)
    left_behind(path, RECORDS, overwrite=True, **keywords)
    left = [str(path.parent / name) for name in temporary(path.parent)]
    listed = anyrecord.recover(path, remove=False)
    assert listed
    assert not listed.interrupted
    assert sorted(found.path for found in listed.temporaries) == left
    assert [found.bytes for found in listed.temporaries] == [os.path.getsize(f.path) for f in listed.temporaries]
    assert states(listed) == {"stale"}
    assert states(anyrecord.recover(path)) == {"removed"}
    assert names(path.parent) == [path.name]
    assert anyrecord.recover(path) == anyrecord.Recovered(interrupted=False, kept=None, paths=())
    assert list(anyrecord.open(path)) == RECORDS


@pytest.mark.parametrize("keywords", SETTINGS.values(), ids=list(SETTINGS))
@pytest.mark.parametrize("when", ["begun", "written", "sealed"])
def test_nothing_of_a_living_writer_is_touched(path: Path, keywords: dict[str, Any], when: str) -> None:
    def lives(wait: Callable[[], None]) -> None:
        out = anyrecord.create(path, durable=False, overwrite=True, **keywords)
        if when == "begun":
            wait()
        out.write_many(RECORDS)
        if when == "written":
            wait()
        out._seal()
        if when == "sealed":
            wait()
        out.close()
        assert sorted(record for name in out.paths for record in anyrecord.open(name)) == sorted(RECORDS)

    with living(lives):
        before = temporary(path.parent)
        assert before
        found = anyrecord.recover(path)
        assert not found
        assert states(found) == {"alive"}
        assert states(anyrecord.recover(path.parent)) == {"alive"}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            write(path)
        assert temporary(path.parent) == before
    assert temporary(path.parent) == []


def test_many_recover_at_once_beside_living_writers(tmp_path: Path) -> None:
    path = tmp_path / "train.tfrecord"
    for _ in range(20):
        left_behind(path, RECORDS[:4], shard_records=1)

    def lives(wait: Callable[[], None]) -> None:
        out = anyrecord.create(tmp_path / "train.tfrecord", shard_records=1, durable=False)
        out.write_many(RECORDS)
        wait()
        out.close()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with living(lives):
            cleaners = [Forked(lambda: [states(anyrecord.recover(path)) for _ in range(5)]) for _ in range(4)]
            for cleaner in cleaners:
                cleaner.result()
            left = anyrecord.recover(path)
            assert states(left) == {"alive"}
    assert len(anyrecord.open(f"{path}@{len(RECORDS)}")) == len(RECORDS)
    assert temporary(tmp_path) == []


def test_temporaries_of_other_targets_stay(tmp_path: Path) -> None:
    others = ["train.tfrecord.gz", "a-train.tfrecord", "train", "trai.tfrecord", "b" * 80 + "1" + "e" * 80]
    for name in [*others, "train.tfrecord", "b" * 80 + "2" + "e" * 80]:
        left_behind(tmp_path / name, RECORDS, format="tfrecord")
    for name in ("train.tfrecord", "b" * 80 + "2" + "e" * 80):
        with pytest.warns(RuntimeWarning, match="was killed"):
            write(tmp_path / name, format="tfrecord")
    assert len(temporary(tmp_path)) == len(others)
    for name in others:
        assert states(anyrecord.recover(tmp_path / name)) == {"removed"}
    assert temporary(tmp_path) == []


def test_through_a_link_the_files_beside_the_real_one_are_meant(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.tfrecord").symlink_to("real/data.tfrecord")
    left_behind(tmp_path / "link.tfrecord", RECORDS)
    assert len(temporary(tmp_path / "real")) == 1
    assert states(anyrecord.recover(tmp_path / "link.tfrecord")) == {"removed"}


@pytest.mark.parametrize("rename", [("_0.tmp", "_0_nolock.tmp"), (r".tmp", None)], ids=["no locks", "earlier version"])
def test_where_nobody_can_tell_whether_the_writer_lives_they_are_only_listed(
    tmp_path: Path, rename: tuple[str, str | None]
) -> None:
    path = tmp_path / "train.tfrecord"
    left_behind(path, RECORDS)
    (name,) = temporary(tmp_path)
    new = ".train.tfrecord.x8f2kq1z.tmp" if rename[1] is None else name.replace(rename[0], rename[1])
    (tmp_path / name).rename(tmp_path / new)
    write(path)
    done = anyrecord.recover(path)
    assert not done
    (found,) = done.temporaries
    assert found.state == "unknown"
    assert found.why
    assert names(tmp_path) == sorted([new, path.name])


def test_a_forked_child_of_a_killed_writer_keeps_its_files_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "train.tfrecord"
    waits, go_on = os.pipe()

    def write_and_fork() -> None:
        out = anyrecord.create(path)
        out.write_many(RECORDS)
        if os.fork() == 0:
            os.close(go_on)
            os.read(waits, 1)
            os._exit(0)
        die()

    killed(write_and_fork)
    assert states(anyrecord.recover(path)) == {"alive"}
    os.close(go_on)
    os.close(waits)
    # The grandchild is not ours to wait for.
    deadline = time.monotonic() + LIMIT_SECONDS
    while states(done := anyrecord.recover(path)) == {"alive"} and time.monotonic() < deadline:
        pass
    assert states(done) == {"removed"}


def test_no_reader_takes_them_for_data(path: Path) -> None:
    write(path)
    left_behind(path, RECORDS, overwrite=True)
    left_behind(path.with_name(f"b{path.suffix}"), RECORDS, overwrite=True)
    for source in (path.parent, f"{path.parent}/*", f"{path.parent}/*.*", f"{path.parent}/**"):
        assert anyrecord.open(source).paths == [str(path)]
        assert anyrecord.info(source).records == len(RECORDS)
        assert anyrecord.verify(source)


def test_a_large_folder_is_not_listed_for_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1000):
        (tmp_path / str(number)).touch()
    listed: list[str] = []
    find = _core.find_temporaries

    def count(folder: str, targets: list[str] | None) -> Any:
        listed.append(folder)
        return find(folder, targets)

    monkeypatch.setattr(_core, "find_temporaries", count)
    for number in range(100):
        with anyrecord.create(tmp_path / f"{number}.tfrecord", durable=False) as out:
            out.write(b"")
    assert 1 <= len(listed) <= 10
    assert len(_temporaries.Leftovers._looked) <= 1000


def convert(folder: Path, **keywords: Any) -> anyrecord.Converted:
    return anyrecord.convert("source-*.tfrecord", f"{folder}/", format="recordio", overwrite=True, **keywords)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    made = [f"source-{number:03}.tfrecord" for number in range(40)]
    for name in made:
        with anyrecord.create(name, durable=False) as out:
            out.write_many([b"x" * 1000, b"y"])
    return made


def kill_at_last(sources: list[str]) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if done == total:
            die()

    return report


@pytest.mark.parametrize("cleans", ["the same conversion", "recover", "a writer of one name"])
def test_a_killed_conversion_into_a_folder(sources: list[str], tmp_path: Path, cleans: str) -> None:
    folder = tmp_path / "made"
    killed(lambda: convert(folder, progress=kill_at_last(sources)))
    assert len(temporary(folder)) == len(sources)
    if cleans == "recover":
        assert states(anyrecord.recover(folder)) == {"removed"}
        assert names(folder) == []
        return
    is_one = cleans == "a writer of one name"
    act = (lambda: write(folder / "source-000.recordio")) if is_one else (lambda: convert(folder))
    with pytest.warns(RuntimeWarning, match="was killed" if is_one else "and 39 more") as told:
        act()
    assert len(told) == 1
    assert len(temporary(folder)) == (39 if is_one else 0)
    assert states(anyrecord.recover(folder)) == ({"removed"} if is_one else set())


def test_a_living_conversion_is_not_touched_and_needs_no_descriptor_for_each_file(
    sources: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "made"
    descriptors: list[int] = []

    def lives(wait: Callable[[], None]) -> None:
        def report(done: int, total: int) -> None:
            descriptors.append(len(os.listdir("/proc/self/fd")))
            if done == total:
                wait()

        assert len(convert(folder, progress=report).paths) == len(sources)
        assert max(descriptors) - min(descriptors) < 10

    with living(lives):
        assert len(temporary(folder)) == len(sources)
        assert states(anyrecord.recover(folder)) == {"alive"}
        assert states(anyrecord.recover(folder / "source-007.recordio")) == {"alive"}
    assert len(anyrecord.open(folder)) == 2 * len(sources)


@needs_stops
@pytest.mark.parametrize("keep", ["old", "new"])
def test_files_that_a_journal_names_are_left_to_its_recovery(tmp_path: Path, keep: Any) -> None:
    path = tmp_path / "train.ffr"
    write(path, shards=2)
    kill_at_rename(lambda: write(path, shards=3), 2)
    before = names(tmp_path)
    assert len(temporary(tmp_path)) == 3
    rows, _ = _core.remove_temporaries(str(tmp_path), None, None)
    assert {row[6] for row in rows} == {"publishing"}
    with pytest.raises(PublishError, match="keep="):
        anyrecord.recover(path)
    assert names(tmp_path) == before
    left_behind(tmp_path / "train.ffr", RECORDS)
    assert anyrecord.recover(path, keep=keep).interrupted
    assert temporary(tmp_path) == []
    assert sorted(anyrecord.open(f"{path}@{2 if keep == 'old' else 3}")) == sorted(RECORDS)


@needs_stops
@pytest.mark.parametrize("keywords", [{}, {"num_records": len(RECORDS)}, {"shards": 2}], ids=str)
def test_after_a_kill_at_any_step_the_next_writer_or_recover_leaves_only_the_set(
    path: Path, keywords: dict[str, Any]
) -> None:
    step, code = 0, None
    while code is None:
        code = stop_at_each(lambda: write(path, **keywords), lambda number, call: KILL if number == step else GO_ON)  # noqa: B023
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                write(path, **keywords)
            except PublishError:
                anyrecord.recover(path, keep="new")
            assert not [name for name in names(path.parent) if name.startswith(".")], f"step {step}"
        step += 1
    assert code == 0
    assert step > 4


@needs_stops
def test_an_index_that_was_not_finished_is_removed_by_the_next_one_or_by_recover(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write(path)
    for clean in (lambda: anyrecord.build_index(path), lambda: anyrecord.recover(path)):
        (tmp_path / ".a.tfrecord.index").unlink(missing_ok=True)
        kill_at_rename(lambda: anyrecord.build_index(path), 0)
        assert len(temporary(tmp_path)) == 1
        clean()
        assert temporary(tmp_path) == []


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    folder = tmp_path / "pets"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.txt").write_bytes(bytes(2_000_000))
    anyrecord.pack(folder, tmp_path / "pets.ffr", durable=False)
    return tmp_path / "pets.ffr"


def test_a_killed_pack(packed: Path) -> None:
    def report(done: int, total: int) -> None:
        if done > total // 2:
            die()

    killed(lambda: anyrecord.pack(packed.with_suffix(""), packed, overwrite=True, progress=report))
    assert len(temporary(packed.parent)) == 1
    with pytest.warns(RuntimeWarning, match="was killed"):
        anyrecord.pack(packed.with_suffix(""), packed, overwrite=True)
    assert temporary(packed.parent) == []


@pytest.mark.parametrize("cleans", ["unpack", "recover"])
def test_a_killed_unpack(packed: Path, cleans: str) -> None:
    def report(done: int, total: int) -> None:
        if done > total // 2:
            die()

    target = packed.parent / "out"
    killed(lambda: anyrecord.unpack(packed, target, progress=report))
    assert len(temporary(packed.parent)) == 1
    if cleans == "recover":
        assert states(anyrecord.recover(target)) == {"removed"}
    else:
        anyrecord.unpack(packed, target)
        assert len(names(target)) == 5
    assert temporary(packed.parent) == []


def test_a_living_unpack_is_not_touched(packed: Path) -> None:
    target = packed.parent / "out"

    def lives(wait: Callable[[], None]) -> None:
        def report(done: int, total: int) -> None:
            if done == total:
                wait()

        anyrecord.unpack(packed, target, progress=report)

    with living(lives):
        assert states(anyrecord.recover(target)) == {"alive"}
    assert len(names(target)) == 5


def test_what_a_killed_writer_left_is_saved(path: Path) -> None:
    left_behind(path, RECORDS, **({"shards": 3} if path.suffix == ".tfrecord" else {}))
    left = temporary(path.parent)
    saved = path.with_name(f"saved{path.suffix}")
    calls: list[tuple[int, int]] = []
    done = anyrecord.recover(path, salvage_to=saved, progress=lambda *call: calls.append(call))
    assert states(done) == {"stale"}
    total = sum(one.source_bytes for one in done.salvaged)
    assert {call[1] for call in calls} == ({total} if done.salvaged else set())
    assert calls == sorted(calls)
    assert calls[-1:] == ([(total, total)] if done.salvaged else [])
    assert set(left) <= set(names(path.parent)), "nothing is removed"
    for one in done.salvaged:
        found = [record for name in one.paths for record in anyrecord.open(name)]
        assert len(found) == one.records > 0
        expected = RECORDS if len(done.salvaged) == 1 else None
        assert expected is None or found == expected[: len(found)]
    assert states(anyrecord.recover(path)) == {"removed"}


@pytest.mark.parametrize("part", ["", "[0:1]", "view"])
def test_a_conversion_of_one_does_not_remove_it(tmp_path: Path, part: str) -> None:
    # With its length and checksums, each record is a block that is written at once.
    left_behind(tmp_path / "a.tfrecord", [bytes((2 << 20) - 16)] * 6)
    [left] = names(tmp_path)
    source = str(tmp_path / left)
    anyrecord.convert(anyrecord.open(source)[:1] if part == "view" else source + part, tmp_path / "a.tfrecord")
    assert set(names(tmp_path)) == {left, "a.tfrecord"}


def test_salvage_to_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    for _ in range(2):
        left_behind(tmp_path / "a.tfrecord", [bytes(1 << 20)] * 12)
    with pytest.raises(ValueError, match="needs the suffix of a format"):
        anyrecord.recover(tmp_path / "a.tfrecord", salvage_to=tmp_path / "saved")
    taken = tmp_path / "saved-00001-of-00002.ffr"
    taken.write_bytes(b"")
    with pytest.raises(FileExistsError, match="another name for salvage_to="):
        anyrecord.recover(tmp_path / "a.tfrecord", salvage_to=tmp_path / "saved.ffr")
    assert not (tmp_path / "saved-00000-of-00002.ffr").exists()


def test_a_writer_in_a_fresh_process_finds_them_too(tmp_path: Path) -> None:
    path = tmp_path / "train.tfrecord"
    left_behind(path, RECORDS)

    def write_again() -> list[str]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            write(path)
        return [str(one.message) for one in told if "was killed" in str(one.message)]

    assert len(forked(write_again)) == 1
    assert names(path.parent) == [path.name]
