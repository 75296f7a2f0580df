"""Disks that are full, folders that cannot be written to: an error with its number, and nothing left behind."""

from __future__ import annotations

import errno
import gc
import os
import random
import resource
import warnings
from pathlib import Path
from typing import NamedTuple

import anyrecord
import pytest
from anyrecord import ClosedError
from children import forked

from writing.folders import names

RECORD = random.Random(1).randbytes(1 << 20)  # no codec makes it smaller


class Outcome(NamedTuple):
    """What a child saw when its disk was full."""

    failed_in: str
    errno: int | None
    afterwards: tuple[str, str]
    left: list[str]
    warnings: list[str]


def write_on_a_full_disk(path: Path, *, num_records: int | None, writes: int, shards: int | None = None) -> Outcome:
    """Writes where no file may grow above 1 MiB; to the system this is a full disk with another number."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    before = len(os.listdir("/proc/self/fd"))
    out = anyrecord.create(path, overwrite=True, num_records=num_records, shards=shards)
    step, number = "write", None
    try:
        for _ in range(writes):
            out.write(RECORD)
        step = "close"
        out.close()
        step = "nothing"
    except OSError as error:
        number = error.errno
    afterwards = (_refusal(out, "write"), _refusal(out, "close"))
    left = names(path.parent)
    assert out.closed
    assert len(os.listdir("/proc/self/fd")) == before
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del out
        gc.collect()
    return Outcome(step, number, afterwards, left, [str(warning.message) for warning in caught])


def _refusal(out: anyrecord.Writer, how: str) -> str:
    try:
        out.write(b"more") if how == "write" else out.close()
    except ClosedError as error:
        return str(error)
    return "not refused"


@pytest.mark.parametrize(
    ("num_records", "writes", "failed_in"),
    [(40, 40, "write"), (None, 40, "write"), (None, 3, "close"), (2, 2, "write")],
    ids=["straight to its place", "spooled to disk", "spooled in memory", "of the announced size"],
)
def test_a_full_disk_is_an_error_that_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, num_records: int | None, writes: int, failed_in: str
) -> None:
    path = tmp_path / "a.ffr"
    with anyrecord.create(path) as out:
        out.write(b"old")
    old = path.read_bytes()
    outcome = forked(lambda: write_on_a_full_disk(path, num_records=num_records, writes=writes))
    assert outcome.failed_in == failed_in
    assert outcome.errno == errno.EFBIG
    assert outcome.left == [path.name]
    assert outcome.warnings == []
    for refusal in outcome.afterwards:
        assert "failed before" in refusal or "discarded after an error" in refusal
    assert path.read_bytes() == old


def test_a_full_disk_under_one_shard_leaves_no_shard(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    outcome = forked(lambda: write_on_a_full_disk(path, num_records=None, writes=9, shards=4))
    assert outcome.failed_in in {"write", "close"}
    assert (outcome.errno, outcome.left) == (errno.EFBIG, [])


def test_leaving_the_block_after_a_failed_write_raises_and_leaves_nothing(tmp_path: Path) -> None:
    def act() -> tuple[int | None, str]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        number = None
        try:
            with anyrecord.create(tmp_path / "a.ffr", num_records=9) as out:
                try:
                    out.write_many([RECORD] * 9)
                except OSError as error:
                    number = error.errno
                # The caller goes on as if nothing had happened; the block must not end as if all were well.
        except ClosedError as error:
            return number, str(error)
        return number, "not refused"

    number, refusal = forked(act)
    assert number == errno.EFBIG
    assert "writing failed before" in refusal
    assert "write the file again" in refusal
    assert names(tmp_path) == []


def test_an_error_on_a_full_disk_names_the_file(tmp_path: Path) -> None:
    def act() -> object:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            with anyrecord.create(tmp_path / "a.ffr", num_records=9) as out:
                out.write_many([RECORD] * 9)
        except OSError as error:
            return error.filename
        return None

    assert forked(act) == str(tmp_path / "a.ffr")


@pytest.mark.parametrize("size", [10, 100_000, 20_000_000])
def test_a_full_device_is_an_error_with_its_number(size: int) -> None:
    with pytest.raises(OSError) as caught, anyrecord.create("/dev/full", format="ffrecord") as out:
        out.write(bytes(size))
    assert caught.value.errno == errno.ENOSPC
    assert out.closed
    with pytest.raises(ClosedError, match="discarded after an error"):
        out.write(b"more")
    with pytest.raises(ClosedError, match="discarded after an error"):
        out.close()


def test_a_full_device_under_a_file_object_is_an_error_with_its_number() -> None:
    with open("/dev/full", "wb", buffering=0) as sink:
        out = anyrecord.create(sink, format="ffrecord")
        out.write(b"a")
        with pytest.raises(OSError) as caught:
            out.close()
        assert caught.value.errno == errno.ENOSPC
        with pytest.raises(ClosedError, match="discarded after an error"):
            out.close()


def test_too_few_descriptors_for_all_shards_is_an_error_that_leaves_nothing(tmp_path: Path, suffix: str) -> None:
    def act() -> str:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError) as caught:
            anyrecord.create(tmp_path / f"a{suffix}", shards=200)
        assert len(os.listdir("/proc/self/fd")) == before
        return str(caught.value)

    assert "Too many open files" in forked(act)
    assert names(tmp_path) == []


@pytest.mark.parametrize("shards", [None, 2])
def test_a_missing_folder_is_not_made(tmp_path: Path, suffix: str, shards: int | None) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        anyrecord.create(tmp_path / "missing" / f"a{suffix}", shards=shards)
    assert caught.value.filename == str(tmp_path / "missing" / f"a{suffix}")
    assert names(tmp_path) == []


@pytest.mark.parametrize("shards", [None, 2])
def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path, suffix: str, shards: int | None) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    with pytest.raises(OSError, match="Not a directory") as caught:
        anyrecord.create(tmp_path / "file" / f"a{suffix}", shards=shards)
    assert str(caught.value.filename).startswith(str(tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == b"kept"


def test_a_folder_without_permission_is_an_error(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o555)

    def act() -> tuple[str, object]:
        os.chdir(folder)  # what is above it may be closed to the other user
        if os.geteuid() == 0:
            os.setuid(65534)
        with pytest.raises(OSError) as caught:
            anyrecord.create(f"a{suffix}")
        return str(caught.value), caught.value.filename

    message, filename = forked(act)
    assert "Permission denied" in message
    assert Path(str(filename)).name == f"a{suffix}"
    assert names(folder) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_in_place_of_the_file_is_an_error(tmp_path: Path, suffix: str, overwrite: bool) -> None:
    path = tmp_path / f"a{suffix}"
    path.mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        anyrecord.create(path, overwrite=overwrite)
    assert caught.value.filename == str(path)
    assert names(tmp_path) == [path.name]


def test_two_thousand_writers_that_fail_or_are_discarded_leak_nothing(tmp_path: Path, suffix: str) -> None:
    before, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    for number in range(1000):
        with pytest.raises(ValueError, match="announced 3"):
            anyrecord.create(tmp_path / f"a{suffix}", num_records=3).close()
        anyrecord.create(tmp_path / f"a{suffix}", threads=0 if number % 50 else 2).discard()
    assert len(os.listdir("/proc/self/fd")) == before
    # A few of the last ones may be on their way out.
    assert len(os.listdir("/proc/self/task")) < threads + 20
    assert names(tmp_path) == []
