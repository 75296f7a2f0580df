"""Sources that are not there, not files, not readable, or file objects that misbehave."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import FormatError, TruncatedError
from conformance.formats import Case
from conformance.storages import write
from turns import turn

from hostile.small import RECORDS, small_file

VERBS: dict[str, Callable[[Any], object]] = {
    "open": anyrecord.open,
    "info": anyrecord.info,
    "verify": anyrecord.verify,
}


@pytest.fixture(params=VERBS)
def verb(request: pytest.FixtureRequest) -> Callable[[Any], object]:
    return VERBS[request.param]


def within_seconds(act: Callable[[], object], seconds: float = 20) -> BaseException | None:
    """The exception of a call that must not hang, made in a thread that a hang would not keep."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert raised, "it hangs"
    return raised[0]


def test_what_is_not_there_is_a_file_not_found_error(case: Case, verb: Callable[[Any], object]) -> None:
    for name in ("missing", "missing/a", "a*", "a@3", "a[0:3]"):
        with turn(name), pytest.raises(FileNotFoundError):
            verb(name + case.suffix)


def test_a_missing_file_in_a_list_is_named(case: Case, verb: Callable[[Any], object]) -> None:
    write(f"here{case.suffix}", RECORDS, case)
    with pytest.raises(FileNotFoundError) as caught:
        verb([f"here{case.suffix}", f"missing{case.suffix}"])
    assert caught.value.filename == f"missing{case.suffix}"


def test_a_folder_without_record_files_is_not_an_empty_data_set(case: Case, verb: Callable[[Any], object]) -> None:
    os.mkdir(f"folder{case.suffix}")
    Path(f"folder{case.suffix}", "notes.txt").touch()
    with pytest.raises(FileNotFoundError, match="folder"):
        verb(f"folder{case.suffix}")


def test_links_that_lead_nowhere_or_in_circles_are_the_systems_errors(
    case: Case, verb: Callable[[Any], object]
) -> None:
    os.symlink("nowhere", f"dangling{case.suffix}")
    with pytest.raises(FileNotFoundError):
        verb(f"dangling{case.suffix}")
    os.symlink(f"circle{case.suffix}", f"circle{case.suffix}")
    with pytest.raises(OSError) as caught:
        verb(f"circle{case.suffix}")
    assert caught.value.errno == errno.ELOOP


def test_what_is_no_regular_file_is_refused_without_waiting(case: Case, verb: Callable[[Any], object]) -> None:
    os.mkfifo(f"pipe{case.suffix}")
    for path in (f"pipe{case.suffix}", os.devnull, "/dev/zero"):  # /dev/zero has no end
        with turn(path):
            error = within_seconds(partial(verb, path))
            assert isinstance(error, ValueError | OSError)
            assert path in str(error)
            assert "regular file" in str(error)


WITHOUT_PERMISSION = """
import os, sys
import anyrecord
if os.geteuid() == 0:
    os.seteuid(65534)
for verb in (anyrecord.open, anyrecord.info, anyrecord.verify):
    try:
        verb(sys.argv[1])
    except PermissionError as error:
        print(error.filename)
"""


def test_a_file_that_may_not_be_read_is_a_permission_error(case: Case, tmp_path: Path) -> None:
    """In a process of its own, which gives up being root: root may read anything."""
    name = f"locked{case.suffix}"
    write(name, RECORDS, case)
    os.chmod(name, 0)
    tmp_path.chmod(0o755)
    command = [sys.executable, "-c", WITHOUT_PERMISSION, name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == [name] * 3


@pytest.mark.parametrize("source", [None, 5, 1.5, object(), [None], [b"a"], [1, 2]], ids=repr)
def test_what_names_no_file_is_a_type_error(verb: Callable[[Any], object], source: Any) -> None:
    with pytest.raises(TypeError):
        verb(source)


def test_no_files_are_not_an_empty_data_set(verb: Callable[[Any], object]) -> None:
    nothings: list[Any] = [[], (), iter([])]
    for nothing in nothings:
        with pytest.raises(ValueError, match="empty"):
            verb(nothing)


# File objects


class Honest(io.RawIOBase):
    """A file object in memory; the others differ from it in one method."""

    name = "an object"

    def __init__(self, data: bytes) -> None:
        self.memory = io.BytesIO(data)

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self.memory.seek(offset, whence)

    def tell(self) -> int:
        return self.memory.tell()

    def read(self, size: int = -1, /) -> Any:
        return self.memory.read(size)


class OneByteAtATime(Honest):
    def read(self, size: int = -1, /) -> Any:
        return self.memory.read(min(size, 1))


class LongerThanItIs(Honest):
    def tell(self) -> int:
        return self.memory.tell() + 4


class GivesTooMuch(Honest):
    def read(self, size: int = -1, /) -> Any:
        return self.memory.read(size) + b"more" if size else b""


class GivesText(Honest):
    def read(self, size: int = -1, /) -> Any:
        return "text"[:size]


class GivesNothing(Honest):
    def read(self, size: int = -1, /) -> Any:
        return None if size else b""


class CannotSeek(Honest):
    def seekable(self) -> bool:
        return False


class Fails(Honest):
    def read(self, size: int = -1, /) -> Any:
        if size:
            raise OSError(errno.EIO, "the disk is on fire")
        return b""


@pytest.mark.parametrize("kind", [Honest, OneByteAtATime])
def test_a_file_object_may_give_fewer_bytes_than_asked_for(case: Case, kind: type[Honest]) -> None:
    with anyrecord.open(kind(small_file(case))) as records:  # type: ignore[arg-type]
        assert tuple(records) == RECORDS
        assert records.paths == ["an object"]
    assert anyrecord.verify(kind(small_file(case))).ok  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (LongerThanItIs, TruncatedError),
        (GivesTooMuch, ValueError),
        (GivesText, TypeError),
        (GivesNothing, TypeError),
        (CannotSeek, ValueError),
        (Fails, OSError),
    ],
)
def test_a_file_object_that_misbehaves_is_an_error_and_never_wrong_records(
    case: Case, verb: Callable[[Any], object], kind: type[Honest], error: type[Exception]
) -> None:
    if kind is LongerThanItIs and case.variant.is_unpacked_at_open:
        error = FormatError  # bytes after the end of the stream, whether or not they can be read
    with pytest.raises(error):
        # A report of damage is as good as an error: the bytes that are not there are missing from the file.
        raise_the_first_problem(verb(kind(small_file(case))))


def raise_the_first_problem(found: object) -> None:
    if isinstance(found, anyrecord.Report) and not found.ok:
        raise found.problems[0]


def test_the_error_of_a_file_object_comes_out_as_it_is(case: Case) -> None:
    with pytest.raises(OSError, match="on fire") as caught:
        anyrecord.open(Fails(small_file(case)))  # type: ignore[arg-type]
    assert caught.value.errno == errno.EIO


def test_a_file_object_closed_under_the_records_is_an_error(case: Case) -> None:
    write(f"a{case.suffix}", RECORDS, case)
    with open(f"a{case.suffix}", "rb") as file:
        records = anyrecord.open(file, cache_bytes=0)
        assert records[0] == RECORDS[0]
    with pytest.raises(ValueError, match="closed"):
        records[3]


# Indices


def test_an_index_that_raises_hands_its_error_on(case: Case) -> None:
    class Raises:
        def __index__(self) -> int:
            raise KeyError("mine")

    def numbers() -> Any:
        yield 0
        raise KeyError("mine")

    with anyrecord.open(small_file(case)) as records:
        keys: list[Any] = [Raises(), [0, Raises()], numbers()]
        for key in keys:
            with pytest.raises(KeyError, match="mine"):
                records[key]
        assert tuple(records) == RECORDS


def test_an_index_that_is_no_number_after_all_is_a_type_error(case: Case) -> None:
    class Lies:
        def __index__(self) -> int:
            return "1"  # type: ignore[return-value]

    with anyrecord.open(small_file(case)) as records:
        for key in (Lies(), [Lies()]):
            with pytest.raises(TypeError):
                records[key]


def test_an_endless_range_of_numbers_is_refused_at_the_first_that_is_not_there(case: Case) -> None:
    with anyrecord.open(small_file(case)) as records, pytest.raises(IndexError):
        records[range(2**62)]
