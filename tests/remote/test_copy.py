"""`copy`: whole files between local folders and stores, all of them or none, continued after an interruption."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import _core

from .servers import Server, faults, start
from .servers.played import Played

CONTENTS = [b"", b"x", random.Random(1).randbytes(3_000_000), random.Random(2).randbytes(9_000_000)]
"""The last one is sent in two parts."""
COUNT = len(CONTENTS)
TOTAL = sum(map(len, CONTENTS))
SERVERS = ["moto", pytest.param("s3s", marks=pytest.mark.framework), "gcs", "azure"]


class Stop(Exception):
    """What a user's function raises."""


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A set of files with any content, named as shards."""
    for number, content in enumerate(CONTENTS):
        (tmp_path / f"set-{number:05}-of-{COUNT:05}.ffr").write_bytes(content)
    return f"{tmp_path}/set.ffr@{COUNT}"


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with start(request.param) as server:
        yield server


def stop_after(done: int) -> Any:
    def progress(now: int, total: int) -> None:
        if now >= done:
            raise Stop

    return progress


def left_in(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith("."))


def test_a_set_goes_to_a_store_and_within_it_and_comes_back(source: str, tmp_path: Path, server: Server) -> None:
    there = anyrecord.copy(source, server.url("there/"), target_storage=server.storage)
    assert (there.files, there.bytes, there.continued) == (COUNT, TOTAL, 0)
    across = anyrecord.copy(
        server.url(f"there/set.ffr@{COUNT}"),
        server.url(f"across/new.ffr@{COUNT}"),
        storage=server.storage,
        target_storage=server.storage,
    )
    assert across.paths[0] == server.url("across/new-00000-of-00004.ffr")
    back = anyrecord.copy(server.url("across/"), f"{tmp_path}/back/", storage=server.storage)
    assert [Path(path).read_bytes() for path in back.paths] == CONTENTS
    assert server.uploads() == []
    assert not [name for name in server.names() if "/." in name]


def test_one_file_gets_the_name_of_the_target_or_keeps_its_own_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"anything")
    (tmp_path / "folder").mkdir()
    for target, path in (("b", "b"), ("folder", "folder/a"), ("new/", "new/a")):
        done = anyrecord.copy(tmp_path / "a", f"{tmp_path}/{target}")
        assert done.paths == (f"{tmp_path}/{path}",)
        assert (tmp_path / path).read_bytes() == b"anything"
    assert anyrecord.copy(tmp_path / "a", "memory://copy-one/b").paths == ("memory://copy-one/b",)


@pytest.mark.parametrize("done", [1, 3_000_001, TOTAL])
def test_a_copy_to_a_store_continues_after_the_files_that_were_complete(source: str, server: Server, done: int) -> None:
    target = server.url(f"stopped-{done}/")
    with pytest.raises(Stop) as stopped:
        anyrecord.copy(source, target, target_storage=server.storage, progress=stop_after(done))
    complete = {1: 2, 3_000_001: 3, TOTAL: 4}[done]
    assert stopped.value.__notes__ == [f"{complete} of {COUNT} files were copied; the same call continues after them"]
    assert not [name for name in server.names() if name.startswith(f"stopped-{done}/set")]
    again = anyrecord.copy(source, target, target_storage=server.storage)
    assert again.continued == complete
    assert [server.get(f"stopped-{done}/{path.rpartition('/')[2]}") for path in again.paths] == CONTENTS
    assert server.uploads() == []
    assert not [name for name in server.names() if "/." in name]


@pytest.mark.parametrize("done", [1, 3_000_001, TOTAL])
def test_a_copy_to_a_folder_continues_after_the_files_that_were_complete(
    source: str, tmp_path: Path, done: int
) -> None:
    target = tmp_path / "target"
    with pytest.raises(Stop):
        anyrecord.copy(source, f"{target}/", progress=stop_after(done))
    complete = {1: 2, 3_000_001: 3, TOTAL: 4}[done]
    assert sorted(os.listdir(target)) == left_in(target)
    assert len(left_in(target)) == complete
    again = anyrecord.copy(source, f"{target}/")
    assert again.continued == complete
    assert [Path(path).read_bytes() for path in again.paths] == CONTENTS
    assert left_in(target) == []


KILLED = """if True:
    import os, signal, sys, anyrecord
    def progress(done, total):
        if done >= 3_000_001:
            os.kill(os.getpid(), signal.SIGKILL)
    options = dict(pair.split("=", 1) for pair in sys.argv[3:])
    anyrecord.copy(sys.argv[1], sys.argv[2], progress=progress, target_storage=options)
"""


@pytest.mark.parametrize("kind", ["moto", "local"])
def test_a_killed_copy_continues(source: str, tmp_path: Path, kind: str) -> None:
    with start("moto") as server:
        target = server.url("killed/") if kind == "moto" else f"{tmp_path}/killed/"
        storage = server.storage if kind == "moto" else {}
        options = [f"{name}={value}" for name, value in storage.items()]
        ended = subprocess.run([sys.executable, "-c", KILLED, source, target, *options], check=False)
        assert ended.returncode == -9
        if kind == "local":
            with pytest.warns(RuntimeWarning, match="was killed and left"):
                again = anyrecord.copy(source, target)
            assert [Path(path).read_bytes() for path in again.paths] == CONTENTS
            assert left_in(tmp_path / "killed") == []
        else:
            again = anyrecord.copy(source, target, target_storage=storage)
            assert [server.get(f"killed/{path.rpartition('/')[2]}") for path in again.paths] == CONTENTS
            assert not [name for name in server.names() if "/." in name]
        assert again.continued == 3


def test_a_source_that_has_changed_is_copied_again(source: str, tmp_path: Path) -> None:
    for target in (f"{tmp_path}/target/", "memory://copy-changed/"):
        with pytest.raises(Stop):
            anyrecord.copy(source, target, progress=stop_after(TOTAL))
        (tmp_path / "set-00001-of-00004.ffr").write_bytes(b"new" + target.encode())
        again = anyrecord.copy(source, target)
        assert again.continued == COUNT - 1
        assert anyrecord.copy(again.paths[1], f"{tmp_path}/seen", overwrite=True).bytes == 3 + len(target)
        assert (tmp_path / "seen").read_bytes() == b"new" + target.encode()


def test_a_copy_that_was_damaged_meanwhile_is_made_again(source: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    with pytest.raises(Stop):
        anyrecord.copy(source, f"{target}/", progress=stop_after(TOTAL))
    left = [target / name for name in left_in(target)]
    left[3].write_bytes(CONTENTS[3][:-1] + b"!")
    left[2].write_bytes(CONTENTS[2][:-1])
    again = anyrecord.copy(source, f"{target}/")
    assert again.continued == COUNT - 2
    assert [Path(path).read_bytes() for path in again.paths] == CONTENTS


def test_what_a_copy_left_that_is_not_readable_is_ignored(source: str, tmp_path: Path) -> None:
    target = "memory://copy-unreadable/"
    with pytest.raises(Stop):
        anyrecord.copy(source, target, progress=stop_after(TOTAL))
    left = [url for url, _ in _core.list_objects(target, False, [])[0]]
    for url, content in zip(
        left, (b"", b"{}", b'{"upload": 1, "parts": 2, "size": 3, "sum": 4}', b"\xff"), strict=True
    ):
        _core.put_object(url, content, [])
    assert anyrecord.copy(source, target).continued == 0


def test_an_upload_that_is_gone_fails_once_and_is_then_made_again(source: str) -> None:
    with start("moto") as server:
        target = server.url("gone/")
        with pytest.raises(Stop):
            anyrecord.copy(source, target, target_storage=server.storage, progress=stop_after(TOTAL))
        for url, _ in _core.list_objects(target, False, list(server.storage.items()))[0]:
            if "set-00003" in url:
                content = anyrecord._copy._parsed(_core.read_object(url, list(server.storage.items())) or b"")
                assert content is not None
                name = server.url("gone/set-00003-of-00004.ffr")
                _core.abort_upload(name, content[0][0], list(server.storage.items()))
        # This server fails at it as if it was overloaded.
        impatient = {**server.storage, "max_retries": 1, "init_backoff": "1ms", "max_backoff": "1ms"}
        with pytest.raises((OSError, anyrecord.PublishError)):
            anyrecord.copy(source, target, target_storage=impatient)
        if any(name.endswith(".publish") for name in server.names()):
            anyrecord.recover(target, keep="old", storage=server.storage)
        again = anyrecord.copy(source, target, target_storage=server.storage)
        assert [server.get(f"gone/{path.rpartition('/')[2]}") for path in again.paths] == CONTENTS


def test_recover_removes_what_a_copy_left(source: str, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        anyrecord.copy(source, f"{tmp_path}/target/", progress=stop_after(TOTAL))
    listed = anyrecord.recover(f"{tmp_path}/target/", remove=False)
    assert [found.state for found in listed.temporaries] == ["stale"] * COUNT
    assert bool(anyrecord.recover(f"{tmp_path}/target/"))
    assert left_in(tmp_path / "target") == []
    assert not anyrecord.recover(f"{tmp_path}/target/")

    with start("moto") as server:
        target = server.url("left/")
        with pytest.raises(Stop):
            anyrecord.copy(source, target, target_storage=server.storage, progress=stop_after(TOTAL))
        assert len(server.uploads()) == COUNT
        listed = anyrecord.recover(target, storage=server.storage)
        assert [found.state for found in listed.temporaries] == ["unknown"] * COUNT
        assert not listed
        assert len(server.uploads()) == COUNT
        removed = anyrecord.recover(target, storage=server.storage, keep="old")
        assert [found.state for found in removed.temporaries] == ["removed"] * COUNT
        assert server.uploads() == []
        assert server.names() == []


RECOVERS = """if True:
    import sys, anyrecord
    print(*(found.state for found in anyrecord.recover(sys.argv[1]).temporaries))
"""
CREATES = """if True:
    import sys, anyrecord
    anyrecord.create(sys.argv[1]).close()
"""


@pytest.mark.parametrize("first", ["kept", "lost", "none"])
def test_other_processes_remove_nothing_of_a_copy_that_runs(source: str, tmp_path: Path, first: str) -> None:
    # Also of one that continues: with a file that becomes the first of its temporary files, or a later one.
    target = tmp_path / "target"
    if first != "none":
        with pytest.raises(Stop):
            anyrecord.copy(source, f"{target}/", progress=stop_after(3_000_001))
    if first == "lost":
        (target / next(name for name in left_in(target) if name.startswith(".set-00000"))).unlink()
    states: list[str] = []

    def progress(done: int, total: int) -> None:
        if done > 3_000_001 and not states:
            before = left_in(target)
            run = [sys.executable, "-c", RECOVERS, f"{target}/"]
            states.extend(subprocess.run(run, check=True, capture_output=True, text=True).stdout.split())
            subprocess.run([sys.executable, "-c", CREATES, target / "set-00000-of-00004.ffr"], check=True)
            assert left_in(target) == before

    done = anyrecord.copy(source, f"{target}/", progress=progress, overwrite=True)
    assert done.continued == {"kept": 3, "lost": 2, "none": 0}[first]
    assert set(states) == {"alive"}
    assert len(states) >= COUNT
    assert [Path(path).read_bytes() for path in done.paths] == CONTENTS
    assert left_in(target) == []


def test_a_store_that_stored_other_bytes_is_found_out() -> None:
    with Played(protocol="gcs") as server:
        server.play(faults.damaged(), method="PUT", times=1)
        _core.put_object("memory://copy-flipped/a", CONTENTS[3], [])
        done = anyrecord.copy("memory://copy-flipped/a", server.url("a"), target_storage=server.storage)
        assert done.bytes == len(CONTENTS[3])
        assert server.get("a") == CONTENTS[3]


@pytest.mark.parametrize(
    ("target", "error", "match"),
    [
        ("one.ffr", ValueError, "4 files cannot all be copied"),
        ("other.ffr@3", ValueError, "has 3 shards, but there are 4 files"),
        ("http://127.0.0.1:1/x/", ValueError, "web server"),
        ("hdfs://host/x/", ValueError, "hdfs"),
        (".", FileExistsError, "overwrite=True"),
    ],
)
def test_targets_that_cannot_be_are_refused_before_anything_is_read(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, error: type[Exception], match: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=match):
        anyrecord.copy(source, target)
    assert left_in(tmp_path) == []


def test_two_files_of_the_same_name_and_ranges_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.ffr").write_bytes(b"x")
    with pytest.raises(ValueError, match="would both become"):
        anyrecord.copy([tmp_path / "a/x.ffr", tmp_path / "b/x.ffr"], f"{tmp_path}/c/")
    with pytest.raises(ValueError, match="copy copies whole files"):
        anyrecord.copy(f"{tmp_path}/a/x.ffr[0:1]", f"{tmp_path}/c/")


def test_an_existing_set_is_replaced_only_if_asked_for(source: str, tmp_path: Path) -> None:
    for target in (f"{tmp_path}/target/", "memory://copy-replaced/"):
        anyrecord.copy(source, target)
        with pytest.raises(FileExistsError, match="overwrite=True"):
            anyrecord.copy(source, target)
        assert anyrecord.copy(source, target, overwrite=True).files == COUNT
