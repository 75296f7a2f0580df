"""Open records and their views as sources: what is written is what they give, in their order."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ClosedError, Limits, MappedRecords, Records
from children import python

RECORDS = [b"%d" % number * (number % 7) for number in range(100)]


def make(name: str, records: list[bytes] = RECORDS, **options: Any) -> Records:
    with anyrecord.create(name, durable=False, **options) as out:
        out.write_many(records)
    return anyrecord.open(name)


VIEWS: dict[str, Callable[[Records], Records | MappedRecords[Any]]] = {
    "all": lambda records: records,
    "slice": lambda records: records[10:90:3],
    "backwards": lambda records: records[::-1],
    "nothing": lambda records: records[:0],
    "shuffle": lambda records: records.shuffle(seed=7, epoch=1),
    "block shuffle": lambda records: records.shuffle(seed=7, window=2, block=8),
    "shard": lambda records: records.shuffle(seed=7).shard(1, of=3),
    "sum": lambda records: records[:30] + records[60:] + records,
    "mixture": lambda records: anyrecord.mix([records[:10], records[10:]], [1, 2], seed=3, length=300),
    "mapped": lambda records: records.map(bytes.upper),
    "mapped slice": lambda records: records.map(bytes.upper).map(lambda record: bytearray(record[::-1]))[::2],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_written_as_it_is_read(suffix: str, name: str) -> None:
    view = VIEWS[name](make("a.recordio", chunk_bytes=100))
    expected = [bytes(record) for record in view]
    done = anyrecord.convert(view, f"b{suffix}", durable=False)
    assert list(anyrecord.open(f"b{suffix}")) == expected
    assert (done.records, done.paths) == (len(expected), (f"b{suffix}",))
    assert done.source_bytes == os.path.getsize("a.recordio")
    assert done.file_bytes == os.path.getsize(f"b{suffix}")
    done = anyrecord.convert(view, f"c{suffix}", shards=3, durable=False)
    shards = [list(anyrecord.open(path)) for path in done.paths]
    assert [record for shard in shards for record in shard] == expected
    each, more = divmod(len(expected), 3)
    assert [len(shard) for shard in shards] == [each + (shard < more) for shard in range(3)]
    done = anyrecord.convert(view, f"d{suffix}", shard_records=40, durable=False)
    assert list(anyrecord.open([*done.paths])) == expected


@pytest.mark.parametrize("kind", ["bytes", "BytesIO", "file object", "list"])
def test_the_records_may_come_from_anywhere(kind: str) -> None:
    make("a.ffr")
    with open("a.ffr", "rb") as file:
        source: Any = {
            "bytes": Path("a.ffr").read_bytes(),
            "BytesIO": io.BytesIO(Path("a.ffr").read_bytes()),
            "file object": file,
            "list": ["a.ffr", "a.ffr[5:10]"],
        }[kind]
        records = anyrecord.open(source)
        done = anyrecord.convert(records, "b.tfrecord")
        assert list(anyrecord.open("b.tfrecord")) == list(records)
        assert done.source_bytes == os.path.getsize("a.ffr")


def test_map_works_on_what_the_view_gives_and_none_is_left_out() -> None:
    records = make("a.ffr")
    anyrecord.convert(records[5:], "b.ffr", map=lambda record: record + b"!" if record else None)
    assert list(anyrecord.open("b.ffr")) == [record + b"!" for record in RECORDS[5:] if record]
    of_sizes: Any = lambda size: b"%d" % size if size > 3 else None  # noqa: E731
    anyrecord.convert(records.map(len), "c.ffr", map=of_sizes)
    assert list(anyrecord.open("c.ffr")) == [b"%d" % len(record) for record in RECORDS if len(record) > 3]
    anyrecord.convert(records.map(lambda record: record or None), "d.ffr", shards=2)
    assert list(anyrecord.open("d.ffr@2")) == [record for record in RECORDS if record]


def test_the_source_can_be_the_target() -> None:
    records = make("a.ffr")
    with pytest.raises(FileExistsError, match="it is a source; pass overwrite=True"):
        anyrecord.convert(records[::-1], "a.ffr")
    anyrecord.convert(records[::-1], "a.ffr", overwrite=True)
    assert list(records) == RECORDS, "those that are open stay what they are"
    assert list(anyrecord.open("a.ffr")) == RECORDS[::-1]
    with anyrecord.create("s.ffr", shards=2) as out:
        out.write_many(RECORDS)
    with pytest.raises(ValueError, match="is a source and would be replaced"):
        anyrecord.convert(anyrecord.open("s.ffr@2")[:5], "s.ffr", shards=3, overwrite=True)


def test_wrong_uses_are_refused_and_leave_nothing() -> None:
    records = make("a.ffr")
    wrong: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: anyrecord.convert(records, "b/", format="ffrecord"), ValueError, "pass a file name to convert open"),
        (lambda: anyrecord.convert(records, "b.ffr", source_format="ffrecord"), ValueError, "already open"),
        (lambda: anyrecord.convert(records, "b.ffr", limits=Limits()), ValueError, "already open"),
        (lambda: anyrecord.convert(records.map(len), "b.ffr"), TypeError, "a record must be bytes"),
        (lambda: anyrecord.convert(records, "b.ffr", colour=1), (TypeError, ValueError), "colour"),  # type: ignore
    ]
    for use, error, message in wrong:
        with pytest.raises(error, match=message):
            use()
    records.close()
    for closed in (records, records.map(len)):
        with pytest.raises(ClosedError):
            anyrecord.convert(closed, "b.ffr")
    assert os.listdir() == ["a.ffr"]


class OwnError(Exception):
    pass


def fails_at(number: int, error: Exception) -> Callable[[bytes], bytes]:
    def function(record: bytes) -> bytes:
        if record == RECORDS[number]:
            raise error
        return record

    return function


@pytest.mark.parametrize("kind", ["path", "range", "records", "view", "mapped"])
def test_an_error_in_a_function_says_which_record_it_was(kind: str) -> None:
    make("a.tfrecord")
    source: dict[str, Callable[[], Any]] = {
        "path": lambda: ["a.tfrecord"],
        "range": lambda: "a.tfrecord[5:50]",
        "records": lambda: anyrecord.open("a.tfrecord"),
        "view": lambda: anyrecord.open("a.tfrecord")[::-1],
        "mapped": lambda: anyrecord.open("a.tfrecord").map(fails_at(37, error)),
    }
    for error, raised in ((OwnError("mine"), OwnError), (StopIteration("mine"), RuntimeError)):
        function = None if kind == "mapped" else fails_at(37, error)
        with pytest.raises(raised) as caught:
            anyrecord.convert(source[kind](), "b.ffr", map=function)
        assert any("record 37 of a.tfrecord" in note for note in caught.value.__notes__)
        assert error in (caught.value, caught.value.__cause__)
    assert os.listdir() == ["a.tfrecord"]


def test_progress_counts_records() -> None:
    records = make("a.ffr")
    calls: list[tuple[int, int]] = []
    anyrecord.convert(records[10:], "b.ffr", progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (90, 90)
    assert calls == sorted(calls)


SCRIPT = """
import re, anyrecord

def peak():
    with open("/proc/self/status") as status:
        return int(re.search("VmHWM:\\\\s+([0-9]+)", status.read())[1])

records = anyrecord.open("large.tfrecord", io="plain")[::-1]
before = peak()
done = anyrecord.convert(records, "b.array_record", durable=False, threads=2)
print(done.records, (peak() - before) // 1024)
"""


def test_two_hundred_megabytes_of_a_view_are_converted_in_a_few() -> None:
    pool, count = os.urandom(1 << 20), 200_000
    with anyrecord.create("large.tfrecord", durable=False) as out:
        for number in range(count):
            at = number * 1000 % 1_000_000
            out.write(pool[at : at + 1000])
    records, megabytes = map(int, python(SCRIPT).split())
    assert records == count
    assert megabytes < 40
