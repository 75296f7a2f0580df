"""The crash checks find each mistake that a writer of files can make, and none in a writer that makes none."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from checks import playing
from checks.faults import fail_at_each_call
from checks.kills import kill_at_each_call
from checks.playing import play
from checks.scenes import Scene

NEW = b"new " * 1000


def write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def safely(path: Path) -> None:
    """As it should be: a temporary file that is synced, renamed, and removed after an error."""
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY)
    try:
        try:
            write_all(descriptor, NEW)
            os.fsync(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        with suppress(InterruptedError):  # it was synced
            os.close(descriptor)
        while True:
            try:
                os.rename(temporary, path)
                break
            except InterruptedError:
                continue
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        raise OSError(error.errno, "published, but not synced") from error
    finally:
        os.close(folder)


def in_place(path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        write_all(file.fileno(), NEW)
        os.fsync(file.fileno())


def removed_before_the_rename(path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(NEW)
    path.unlink()
    os.rename(temporary, path)


def without_a_look_at_errors(path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb", buffering=0) as file, suppress(OSError):
        write_all(file.fileno(), NEW)
    os.rename(temporary, path)


def leaving_its_temporary_file(path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb", buffering=0) as file:
        write_all(file.fileno(), NEW)
    os.rename(temporary, path)


def leaving_a_descriptor(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    safely(path)
    os.close(folder)


def without_the_rest_of_a_short_write(path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb", buffering=0) as file:
        os.write(file.fileno(), NEW)
    os.rename(temporary, path)


def syncing_until_it_works(path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb", buffering=0) as file:
        write_all(file.fileno(), NEW)
        for _ in range(3):
            try:
                os.fsync(file.fileno())
                break
            except OSError:
                continue
    os.rename(temporary, path)


def one_after_the_other(path: Path) -> None:
    safely(path)
    safely(path.with_name("second"))


def scene(write: Callable[[Path], None]) -> Scene:
    def prepare(_: Path, stage: Path) -> None:
        for name in ("first", "second")[: 2 if write is one_after_the_other else 1]:
            (stage / name).write_bytes(b"old")

    return Scene(
        write.__name__, prepare, lambda _, stage: write(stage / "first"), lambda stage: (stage / "first").read_bytes()
    )


def violations(check: Callable[[Scene, Path, bool], playing.Found], write: Callable[[Path], None], folder: Path) -> str:
    found = check(scene(write), folder, False)
    assert sum(tried for tried, _ in found.values()) > 3
    return "\n".join(text for _, texts in found.values() for text in texts)


def test_a_safe_writer_has_no_violation(tmp_path: Path) -> None:
    assert violations(kill_at_each_call, safely, tmp_path) == ""
    assert violations(fail_at_each_call, safely, tmp_path) == ""


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (in_place, "neither the old files nor the new ones"),
        (removed_before_the_rename, "neither the old files nor the new ones: nothing"),
        (one_after_the_other, "neither the old files nor the new ones"),
    ],
)
def test_a_writer_that_a_kill_can_hurt_is_found(tmp_path: Path, write: Callable[[Path], None], told: str) -> None:
    assert told in violations(kill_at_each_call, write, tmp_path)


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (in_place, "the old files are not as before"),
        (without_a_look_at_errors, "ENOSPC at write of .first.tmp (change 1): no error"),
        (leaving_its_temporary_file, "the old files are not as before: ['.first.tmp', 'first']"),
        (leaving_a_descriptor, "a descriptor stays open"),
        (without_the_rest_of_a_short_write, "a short write at write of .first.tmp (change 1): not the new files"),
        (syncing_until_it_works, "synced again after its sync had failed"),
    ],
)
def test_a_writer_that_an_error_can_hurt_is_found(tmp_path: Path, write: Callable[[Path], None], told: str) -> None:
    assert told in violations(fail_at_each_call, write, tmp_path)


def test_a_system_that_cannot_watch_processes_is_a_violation_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(playing, "missing", lambda: "run this on Linux")
    [figure] = play("kills", kill_at_each_call, short=True)
    assert not figure.ok
    assert "run this on Linux" in str(figure)
