"""`ArrayRecordWriter`, call by call, beside the original; and where ours is kinder to files."""

from __future__ import annotations

import gc
import os
import sys
from collections import deque
from pathlib import Path
from typing import Any

import anyrecord
import numpy as np
import pytest

from .sides import Case, Side, assert_same, numbers, ours, theirs

RECORDS: dict[str, Any] = {
    "bytes": b"x",
    "empty": b"",
    "numpy bytes": np.bytes_(b"x"),
    "str": "x",
    "bytearray": bytearray(b"x"),
    "memoryview": memoryview(b"x"),
    "array": np.array([1], "u1"),
    "int": 1,
    "None": None,
}


def opened(side: Side, options: str = "") -> Any:
    return side.module.ArrayRecordWriter(side.path(), options)


def failed(side: Side) -> Any:
    return side.module.ArrayRecordWriter("/missing/folder/f")


CASES: dict[str, Case] = {
    "state": lambda side: [(w := opened(side)).ok(), w.is_open(), w.close(), w.ok(), w.is_open(), w.close()],
    "returns": lambda side: [(w := opened(side)).write(b"1"), w.close()],
    "write closed": lambda side: [(w := opened(side)).close(), w.write(b"1")],
    "keyword": lambda side: opened(side).write(record=b"1"),
    "flush": lambda side: opened(side).flush,
    "with": lambda side: opened(side).__enter__,
    "len": lambda side: len(opened(side)),
    "attributes": lambda side: setattr(opened(side), "other", 1),
    "pickle": lambda side: __import__("pickle").dumps(opened(side)),
    "copy": lambda side: __import__("copy").copy(opened(side)),
    "bytes path": lambda side: side.module.ArrayRecordWriter(side.path().encode()).close(),
    "Path": lambda side: side.module.ArrayRecordWriter(Path(side.path())),
    "no path": lambda side: side.module.ArrayRecordWriter(),
    "bytes options": lambda side: side.module.ArrayRecordWriter(side.path(), b"group_size:2").close(),
    "options None": lambda side: side.module.ArrayRecordWriter(side.path(), None),
    "keywords": lambda side: side.module.ArrayRecordWriter(path=side.path(), options="", other=1).close(),
    "failed state": lambda side: [(w := failed(side)).ok(), w.is_open()],
    "failed write": lambda side: failed(side).write(b"1"),
    "failed write of str": lambda side: failed(side).write("1"),
    "failed close": lambda side: failed(side).close(),
    "folder": lambda side: side.module.ArrayRecordWriter(str(side.folder)).ok(),
    "no name": lambda side: side.module.ArrayRecordWriter("").ok(),
    "bucket": lambda side: side.module.ArrayRecordWriter("gs://bucket/f").ok(),
}


@pytest.mark.framework
@pytest.mark.parametrize("name", CASES)
def test_calls(tmp_path: Path, name: str) -> None:
    assert_same(CASES[name], tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize("name", RECORDS)
def test_records(tmp_path: Path, name: str) -> None:
    def case(side: Side) -> list[bytes]:
        found: list[bytes] = side.module.ArrayRecordReader(side.write([RECORDS[name]])).read_all()
        return found

    assert_same(case, tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize(
    "options",
    ["", "group_size:1", "group_size:7,uncompressed", "group_size:10000,brotli:9,max_parallelism:4",
     "group_size:1000,brotli:6", "snappy,group_size:3", "transpose,group_size:5", "pad_to_block_boundary:true"],
)  # fmt: skip
def test_each_reads_what_the_other_writes(tmp_path: Path, options: str) -> None:
    records = numbers(50)
    here, there = ours(tmp_path), theirs(tmp_path)
    mine, original = here.write(records, options), there.write(records, options)
    for side, file in ((here, original), (there, mine)):
        reader = side.module.ArrayRecordReader(file)
        assert reader.read_all() == records
    assert anyrecord.info(mine).options == anyrecord.info(original).options
    if "uncompressed" in options:
        assert Path(mine).read_bytes() == Path(original).read_bytes()


def test_a_file_appears_when_it_is_closed_and_the_old_one_stays_until_then(tmp_path: Path) -> None:
    side = ours(tmp_path)
    side.write([b"old"])
    writer = opened(side)
    writer.write(b"new")
    assert list(anyrecord.open(side.path())) == [b"old"]
    writer.close()
    assert list(anyrecord.open(side.path())) == [b"new"]


def test_dropping_an_unclosed_writer_warns_and_publishes_nothing(tmp_path: Path) -> None:
    side = ours(tmp_path)
    kept = [opened(side)]
    kept[0].write(b"1")
    with pytest.warns(RuntimeWarning) as caught:
        kept.clear()
    assert "nothing was published" in str(caught[0].message)
    assert os.listdir(side.folder) == []


def test_dropping_a_writer_that_failed_is_silent(tmp_path: Path) -> None:
    writer = failed(ours(tmp_path))
    del writer
    gc.collect()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_raises_when_it_is_noticed_and_ever_after(tmp_path: Path) -> None:
    writer = ours(tmp_path).module.ArrayRecordWriter("/dev/full", "uncompressed")
    with pytest.raises(RuntimeError) as first:
        deque((writer.write(bytes(100_000)) for _ in range(1000)), 0)
    assert "No space left" in str(first.value)
    assert not writer.ok()
    assert writer.is_open()
    for call in (lambda: writer.write(b"1"), writer.close, writer.close):
        with pytest.raises(RuntimeError) as later:
            call()
        assert str(later.value) == str(first.value)
    assert not writer.is_open()


def test_an_error_of_the_path_is_told_at_use(tmp_path: Path) -> None:
    writer = failed(ours(tmp_path))
    with pytest.raises(RuntimeError) as caught:
        writer.write(b"1")
    assert "/missing/folder/f" in str(caught.value)


def test_parallel_compression_writes_the_same_bytes(tmp_path: Path) -> None:
    side = ours(tmp_path)
    records = [b"record %d " % i * 20 for i in range(3000)]
    one = side.write(records, "group_size:100,brotli:6", "one")
    four = side.write(records, "group_size:100,brotli:6,max_parallelism:4", "four")
    assert Path(one).read_bytes() == Path(four).read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
@pytest.mark.framework
def test_a_new_file_has_the_permissions_of_the_original(tmp_path: Path) -> None:
    assert_same(lambda side: os.stat(side.write([b"1"])).st_mode, tmp_path)
