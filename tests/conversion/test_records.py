"""What happens to records on the way: functions on them, progress, and what the new format cannot hold."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import anyrecord
import numpy as np
import pytest
from anyrecord import ChecksumError, LimitError, Limits

RECORDS = [b"%d" % number for number in range(100)]


def make(name: str, records: list[bytes] = RECORDS, **options: Any) -> str:
    with anyrecord.create(name, durable=False, **options) as out:
        out.write_many(records)
    return name


def test_map_makes_other_records_of_any_buffer(suffix: str) -> None:
    make("a.tfrecord")
    kinds: list[Callable[[bytes], Any]] = [bytes, bytearray, memoryview, lambda record: np.frombuffer(record, np.uint8)]

    def turned(record: bytes) -> Any:
        assert type(record) is bytes
        return kinds[int(record) % len(kinds)](record[::-1])

    anyrecord.convert("a.tfrecord", f"b{suffix}", map=turned)
    assert list(anyrecord.open(f"b{suffix}")) == [record[::-1] for record in RECORDS]


def test_map_leaves_out_what_it_makes_none_of_and_keeps_what_is_empty(suffix: str) -> None:
    make("a.ffr")
    done = anyrecord.convert("a.ffr", f"b{suffix}", map=lambda r: None if r.endswith(b"7") else b"" if r == b"5" else r)
    expected = [b"" if record == b"5" else record for record in RECORDS if not record.endswith(b"7")]
    assert (done.records, list(anyrecord.open(f"b{suffix}"))) == (90, expected)


def test_shards_are_balanced_before_anything_is_left_out() -> None:
    make("a.ffr")
    anyrecord.convert("a.ffr", "b.tfrecord", shards=4, map=lambda record: record if int(record) >= 50 else None)
    records = anyrecord.open("b.tfrecord@4")
    assert list(records) == RECORDS[50:]
    assert [len(anyrecord.open(path)) for path in records.paths] == [0, 0, 25, 25]


@pytest.mark.parametrize("result", ["text", 5, [b"x"], np.zeros((4, 4))[:, 1]])
def test_what_is_no_record_is_a_type_error(result: Any) -> None:
    make("a.ffr")
    with pytest.raises(TypeError, match="a record must be bytes"):
        anyrecord.convert("a.ffr", "b.ffr", map=lambda record: result)
    assert os.listdir() == ["a.ffr"]


def test_an_exception_in_map_or_progress_comes_out_as_it_went_in() -> None:
    make("a.ffr")

    def fails(*arguments: object) -> Any:
        raise LookupError("mine")

    for keywords in ({"map": fails}, {"progress": fails}, {"progress": fails, "shards": 3}):
        with pytest.raises(LookupError, match="mine"):
            anyrecord.convert("a.ffr", "b.ffr", **keywords)
    assert os.listdir() == ["a.ffr"]


@pytest.mark.parametrize("target", ["b.array_record", "made/"])
def test_progress_counts_the_bytes_of_all_sources_up(target: str) -> None:
    for number in range(3):
        make(f"{number}.tfrecord", [bytes(3_000_000)] * 20)
    total = sum(os.path.getsize(f"{number}.tfrecord") for number in range(3))
    calls: list[tuple[int, int]] = []
    options: Any = {"format": "array_record", "level": 9, "durable": False}
    anyrecord.convert("*.tfrecord", target, progress=lambda done, of: calls.append((done, of)), **options)
    assert {of for _, of in calls} == {total}
    assert calls == sorted(calls)
    assert calls[-1] == (total, total)
    assert len(calls) > 1


def test_progress_begins_at_the_beginning(suffix: str) -> None:
    """The format is found out at the end of a file, and some tables are there: that is not progress."""
    make(f"a{suffix}", [os.urandom(1_000_000)] * 100)
    calls: list[float] = []
    anyrecord.convert(f"a{suffix}", "b.tfrecord", progress=lambda done, of: calls.append(done / of), durable=False)
    assert calls[0] < 0.5  # it is called after 32 MiB at the latest
    assert calls == sorted(calls)
    assert len(calls) > 2


def test_a_record_that_the_new_format_cannot_hold_is_named() -> None:
    make("a.tfrecord", [b"small", b"small", b"too large for it"])
    with pytest.raises(ValueError, match=r"record of 16 bytes is too large.*record 2"):
        anyrecord.convert(["a.tfrecord", "a.tfrecord"], "b.recordio", chunk_bytes=10)
    assert os.listdir() == ["a.tfrecord"]


def test_damage_in_a_source_is_named_and_nothing_is_written(suffix: str) -> None:
    make("good.tfrecord")
    make(f"bad{suffix}", [os.urandom(5000) for _ in range(20)])
    with open(f"bad{suffix}", "r+b") as file:
        file.seek(os.path.getsize(f"bad{suffix}") // 3)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    before = sorted(os.listdir())
    for target in (f"b{suffix}", "b.recordio", "b.ffr"):
        for check in (True, False):
            with pytest.raises(ChecksumError) as caught:
                anyrecord.convert(["good.tfrecord", f"bad{suffix}"], target, verify=check)
            assert caught.value.path == f"bad{suffix}"
            assert caught.value.record is not None
    assert sorted(os.listdir()) == before


def test_limits_hold_for_sources() -> None:
    make("a.array_record", [bytes(100_000)])
    with pytest.raises(LimitError):
        anyrecord.convert("a.array_record", "b.ffr", limits=Limits(decoded_chunk_bytes=1000))
    assert os.listdir() == ["a.array_record"]
