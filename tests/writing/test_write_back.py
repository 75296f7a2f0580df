"""A durable writer lets the disk write while records are written. The last sync decides whether the file is there."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from turns import turn

from checks.stopping import GO_ON, Call, Ended, watch
from writing.folders import names
from writing.stopping import can_stop

pytestmark = pytest.mark.skipif(not can_stop(), reason="needs Linux and seccomp")

START, SYNC = "sync_file_range", "fsync"
RECORD = random.Random(1).randbytes(1 << 20)  # no codec makes it smaller
LARGE, SMALL = 20, 7  # records: more than two pieces of 8 MiB, and less than one
FORMATS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("a.ffr", {}),
    ("a.ffr", {"num_records": LARGE}),
    ("a.array_record", {"codec": "none"}),
    ("a.array_record", {"codec": "zstd", "threads": 2}),
    ("a.recordio", {}),
    ("a.tfrecord", {}),
)


def write(path: Path, count: int = LARGE, **options: Any) -> None:
    with anyrecord.create(path, **options) as out:
        for _ in range(count):
            out.write(RECORD)


def calls_of(act: Callable[[], object], folder: Path, answer: int = GO_ON) -> tuple[list[Call], Ended]:
    """The calls with which a child asks the disk to write. Those that do not wait get the answer."""
    calls: list[Call] = []

    def decide(call: Call) -> int:
        calls.append(call)
        return answer if call.name == START else GO_ON

    ended = watch(act, decide, str(folder), frozenset({START, SYNC}))
    return [call for call in calls if not call.is_folder], ended


def test_the_disk_begins_before_the_end_in_every_format(tmp_path: Path) -> None:
    for name, options in FORMATS:
        with turn((name, options)):
            path = tmp_path / name
            calls, ended = calls_of(partial(write, path, **options), tmp_path)
            assert not ended.error, ended.text
            # Bytes of a table at the beginning are written last, and so is the piece that has them.
            pieces = 1 if "num_records" in options else 2
            assert [call.name for call in calls] == [START] * pieces + [SYNC]
            assert len({call.path for call in calls}) == 1
            assert list(anyrecord.open(path)) == [RECORD] * LARGE
            path.unlink()


def test_small_files_and_files_that_are_not_durable_make_no_call(tmp_path: Path) -> None:
    for name, options in FORMATS:
        with turn((name, options)):
            path = tmp_path / name
            calls, ended = calls_of(partial(write, path, durable=False, **options), tmp_path)
            assert not ended.error, ended.text
            assert calls == []
            path.unlink()
    calls, _ = calls_of(partial(write, tmp_path / "a.tfrecord", SMALL), tmp_path)
    assert [call.name for call in calls] == [SYNC]
    calls, _ = calls_of(partial(write, tmp_path / "b.tfrecord", durable=False, shard_records=7), tmp_path)
    assert calls == []


def test_the_disk_has_all_shards_before_the_first_is_waited_for(tmp_path: Path) -> None:
    calls, ended = calls_of(partial(write, tmp_path / "a.tfrecord", shards=4), tmp_path)
    assert not ended.error, ended.text
    files = [call for call in calls if ".publish" not in call.path]
    assert [call.name for call in files] == [START] * 4 + [SYNC] * 4


def test_a_full_shard_is_waited_for_when_the_next_one_is_full(tmp_path: Path) -> None:
    calls, ended = calls_of(partial(write, tmp_path / "a.tfrecord", 12, shard_records=3), tmp_path)
    assert not ended.error, ended.text
    files = [call for call in calls if ".publish" not in call.path]
    shards = list(dict.fromkeys(call.path for call in files))
    seen = [(call.name, shards.index(call.path)) for call in files]
    assert seen == [
        (START, 0),
        (START, 1),
        (SYNC, 0),
        (START, 2),
        (SYNC, 1),
        (START, 3),
        (SYNC, 2),
        (SYNC, 3),
    ]
    assert list(anyrecord.open(f"{tmp_path}/a-*")) == [RECORD] * 12


def test_bytes_that_the_disk_did_not_take_are_an_error_and_nothing_stays(tmp_path: Path) -> None:
    for number in (errno.EIO, errno.ENOSPC):
        for options in ({}, {"shards": 2}, {"shard_records": 5}):
            with turn((number, options)):
                calls, ended = calls_of(partial(write, tmp_path / "a.ffr", **options), tmp_path, number)
                assert ended.error.startswith("OSError: "), ended.error
                assert os.strerror(number) in ended.error
                assert "a.ffr" in ended.error
                assert [call.name for call in calls] == [START]
                assert not ended.leaked
                assert names(tmp_path) == []


def test_a_system_without_the_call_syncs_at_the_end(tmp_path: Path) -> None:
    for number in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
        with turn(number):
            path = tmp_path / "a.tfrecord"
            calls, ended = calls_of(partial(write, path), tmp_path, number)
            assert not ended.error, ended.text
            assert [call.name for call in calls] == [START, SYNC]
            assert list(anyrecord.open(path)) == [RECORD] * LARGE
            path.unlink()
