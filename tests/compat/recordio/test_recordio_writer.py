"""`Writer` and `new_writer`, call by call."""

from __future__ import annotations

import errno
import io
import os
import pickle
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord.compat.recordio import GZIP, NO_COMPRESSION, SNAPPY, Scanner, Writer, new_writer
from children import forked

BIG = 32 << 20


def written(records: list[Any], *arguments: int) -> bytes:
    file = io.BytesIO()
    writer = new_writer(file, *arguments)
    assert [writer.write(record) for record in records] == [len(record) for record in records]
    writer.close()
    return file.getvalue()


def info(contents: bytes) -> anyrecord.Info:
    return anyrecord.info(contents, format="recordio")


# The binding


@pytest.mark.parametrize("name", ["snappy_default", "snappy_one", "snappy_one_empty", "default_args", "empty"])
def test_the_bytes_are_the_originals(golden: Path, name: str) -> None:
    original = golden / "recordio" / f"{name}.recordio"
    writer = Writer("again.recordio")
    for record in anyrecord.open(original):
        writer.write(record)
    writer.close()
    assert Path("again.recordio").read_bytes() == original.read_bytes()


def test_write_and_close_return_nothing_and_any_bytes_will_do() -> None:
    writer: Any = Writer("a.recordio")
    assert [writer.write(record) for record in (b"", b"\0", b"a\0b")] == [None] * 3
    assert writer.close() is None
    assert list(Scanner("a.recordio")) == [b"", b"\0", b"a\0b"]


@pytest.mark.parametrize("record", ["text", bytearray(b"x"), memoryview(b"x"), None, 7])
def test_what_is_not_bytes_is_a_value_error(record: Any) -> None:
    with Writer("a.recordio") as writer:
        with pytest.raises(ValueError, match=r"^record is not a bytes type, got: <class '\w+'>$") as error:
            writer.write(record)
        assert str(type(record)) in str(error.value)


@pytest.mark.parametrize("path", [b"a.recordio", None, 7])
def test_what_is_no_path_has_no_encode(path: Any) -> None:
    for kind in (Writer, Scanner):
        with pytest.raises(AttributeError, match=r"object has no attribute 'encode'"):
            kind(path)
    assert os.listdir() == []


def test_a_pathlike_is_a_path() -> None:
    Writer(Path("a.recordio")).close()
    assert Path("a.recordio").read_bytes() == b""


@pytest.mark.parametrize("path", ["missing/a.recordio", "", "a\0b", "folder"])
def test_what_cannot_be_created_is_a_runtime_error_with_the_reason(path: str) -> None:
    os.mkdir("folder")
    with pytest.raises(RuntimeError) as error:
        Writer(path)
    first, reason = str(error.value).split("\n", 1)
    assert first == f"Failed to create recordio file: {path}"
    assert reason


def test_a_record_of_32_mib_is_refused_and_the_others_are_kept() -> None:
    with Writer("a.recordio") as writer:
        writer.write(b"before")
        with pytest.raises(ValueError, match=r"^Cannot write big record close to the chunk size"):
            writer.write(bytes(BIG))
        writer.write(bytes(BIG - 1))
    assert [len(record) for record in Scanner("a.recordio")] == [6, BIG - 1]


def test_the_old_file_stays_until_close() -> None:
    Path("a.recordio").write_bytes(b"old")
    writer = Writer("a.recordio")
    writer.write(b"new")
    assert Path("a.recordio").read_bytes() == b"old"
    writer.close()
    assert list(Scanner("a.recordio")) == [b"new"]


def test_a_close_that_fails_raises_once_and_leaves_nothing() -> None:
    writer = Writer("a.recordio")
    writer.write(b"x")
    os.mkdir("a.recordio")
    with pytest.raises(RuntimeError, match=r"^Failed to write chunk data\n.*a\.recordio"):
        writer.close()
    writer.close()
    assert os.listdir() == ["a.recordio"]


def test_a_dropped_writer_warns_and_publishes_nothing() -> None:
    writer = Writer("a.recordio")
    writer.write(b"x")
    writers = [writer]
    del writer
    with pytest.warns(RuntimeWarning, match=r"a\.recordio with 1 records was dropped"):
        writers.clear()
    assert os.listdir() == []


def test_an_exception_inside_with_publishes_nothing() -> None:
    writer = Writer("a.recordio")
    writer.write(b"x")
    with pytest.raises(ZeroDivisionError), writer:
        _ = 1 // 0
    writer.close()
    assert os.listdir() == []


def test_after_close_write_raises_and_touches_no_other_file() -> None:
    first, second = Writer("a.recordio"), Writer("b.recordio")
    second.close()
    second.close()
    with pytest.raises(ValueError, match="Cannot write since writer had been closed") as error:
        second.write(b"x")
    assert isinstance(error.value, anyrecord.ClosedError)
    assert isinstance(error.value, RuntimeError)
    first.write(b"first")
    first.close()
    assert (list(Scanner("a.recordio")), list(Scanner("b.recordio"))) == ([b"first"], [])


def test_a_forked_child_writes_its_own_file() -> None:
    Writer("a.recordio").close()

    def child() -> list[bytes]:
        with Writer("b.recordio") as writer:
            writer.write(b"child")
        return list(Scanner("b.recordio"))

    assert forked(child) == [b"child"]


def test_writers_cannot_be_pickled() -> None:
    with Writer("a.recordio") as writer, pytest.raises(TypeError, match="cannot pickle a Writer"):
        pickle.dumps(writer)


# Go


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("none_default", (-1, NO_COMPRESSION)),
        ("none_chunk200", (200, NO_COMPRESSION)),
        ("snappy_default", (-1, SNAPPY)),
        ("snappy_chunk200", (200, SNAPPY)),
        ("default_args", (-1, -1)),
        ("zero_args", (0, 0)),
        ("none_all_empty", (10, 0)),
    ],
)
def test_arguments_mean_what_they_mean_to_the_original(golden: Path, name: str, arguments: tuple[int, int]) -> None:
    original = golden / "recordio" / f"{name}.recordio"
    assert written(list(anyrecord.open(original)), *arguments) == original.read_bytes()


def test_gzip_is_written_and_read() -> None:
    contents = written([b"one", b"two"], -1, GZIP)
    assert info(contents).codec == "gzip"
    assert list(anyrecord.open(contents)) == [b"one", b"two"]


def test_chunks_are_cut_where_the_original_cuts_them() -> None:
    records = [b"12345", b"1234", b"1", b"12", b"123456789", b"1", b"", b""]
    contents = written(records, 10)
    places = [anyrecord.open(contents).locate(index).chunk for index in range(len(records))]
    assert places == [0, 0, 0, 1, 2, 2, 2, 2]


def test_a_record_as_large_as_a_chunk_is_refused() -> None:
    writer = new_writer(io.BytesIO(), 10)
    assert writer.write(b"123456789") == 9
    with pytest.raises(ValueError, match=r"big record.*10 bytes.*chunks of 10 bytes the largest is 9"):
        writer.write(b"1234567890")
    writer.close()


@pytest.mark.parametrize("compressor", [3, 9])
def test_an_unknown_compressor_is_refused_at_once(compressor: int) -> None:
    with pytest.raises(ValueError, match=f"^Unknown compressor ID: {compressor}"):
        new_writer(io.BytesIO(), -1, compressor)


@pytest.mark.parametrize("file", ["a.recordio", None, 7])
def test_an_open_file_is_needed(file: Any) -> None:
    with pytest.raises(TypeError, match=r"pass an open file with write\(\)"):
        new_writer(file)


def test_arguments_are_whole_numbers() -> None:
    wrong: Any = "10"
    for arguments in ((wrong, -1), (-1, wrong)):
        with pytest.raises(TypeError):
            new_writer(io.BytesIO(), *arguments)


def test_buffers_are_copied_so_that_they_can_be_used_again() -> None:
    file, buffer = io.BytesIO(), bytearray(b"one")
    with new_writer(file) as writer:
        assert writer.write(buffer) == 3
        buffer[:] = b"two"
        assert writer.write(memoryview(buffer)) == 3
    assert list(anyrecord.open(file)) == [b"one", b"two"]


def test_close_closes_the_file_and_a_second_one_does_nothing() -> None:
    with open("a.recordio", "wb") as file:
        writer = new_writer(file)
        writer.write(b"x")
        writer.close()
        assert file.closed
        writer.close()
    with pytest.raises(ValueError, match="Cannot write since writer had been closed"):
        writer.write(b"x")
    assert list(Scanner("a.recordio")) == [b"x"]


def test_a_buffered_file_is_flushed() -> None:
    with open("a.recordio", "wb", buffering=0) as raw:
        writer = new_writer(io.BufferedWriter(raw))
        writer.write(b"x")
        writer.close()
    assert list(Scanner("a.recordio")) == [b"x"]


class Full(io.RawIOBase):
    def write(self, data: object) -> int:
        raise OSError(errno.ENOSPC, "no room")


def test_a_full_disk_is_an_error_that_stays() -> None:
    file: Any = Full()
    writer = new_writer(file, 10)
    writer.write(b"123456")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^Failed to write chunk data\n(.|\n)*no room"):
            writer.write(b"123456")
    with pytest.raises(RuntimeError, match="no room"):
        writer.close()
    assert file.closed
    writer.close()


def test_a_full_disk_at_close_is_an_error() -> None:
    file: Any = Full()
    writer = new_writer(file)
    writer.write(b"123456")
    with pytest.raises(RuntimeError, match="no room"):
        writer.close()
    assert file.closed


def test_an_exception_inside_with_lets_the_file_go() -> None:
    with open("a.recordio", "wb") as file:
        with pytest.raises(ZeroDivisionError), new_writer(file):
            _ = 1 // 0
        assert file.closed
