"""What goes in comes out: records of every size and number."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.formats import CASES, Case
from conformance.storages import write

SOURCE = random.Random(7)

CONTENTS: dict[str, Callable[[], list[bytes]]] = {
    "none": list,
    "one empty": lambda: [b""],
    "only empty": lambda: [b""] * 17,
    "one byte": lambda: [b"\n"],
    "every byte": lambda: [bytes([byte]) for byte in range(256)],
    "empty at the ends": lambda: [b"", b"", b"middle", b"", b""],
    "many tiny": lambda: [b"%d" % i for i in range(20_000)],
    "mixed": lambda: [SOURCE.randbytes(SOURCE.choice([0, 1, 2, 100, 1000, 5000])) for _ in range(300)],
    "70 KB": lambda: [SOURCE.randbytes(70_000)] * 3,
    "3 MB": lambda: [b"small", SOURCE.randbytes(3_000_000), b"", SOURCE.randbytes(3_000_001)],
    "around 64 KiB": lambda: [bytes(65_536 + extra) for extra in range(-2, 3)],
    "around 1 MiB": lambda: [bytes([extra]) * (1_048_575 + extra) for extra in range(3)],
    "zeros and ones": lambda: [bytes(1000), b"\xff" * 1000],
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_what_was_written_is_read(case: Case, content: Callable[[], list[bytes]]) -> None:
    expected = content()
    path = f"content{case.suffix}"
    with anyrecord.create(path, durable=False, **case.options) as out:
        for record in expected:
            out.write(record)
        assert (out.num_records, out.num_bytes) == (len(expected), sum(map(len, expected)))
    with anyrecord.open(path) as records:
        assert len(records) == len(expected)
        assert list(records) == expected
        assert records[range(len(expected))] == expected
        assert [records[i] for i in range(-min(len(expected), 300), 0)] == expected[-300:]
        sizes = records.sizes()
        assert sizes is None or list(sizes) == [len(record) for record in expected]
    report = anyrecord.verify(path)
    assert report.ok
    assert (report.records, report.decoded_bytes) == (len(expected), sum(map(len, expected)))
    assert report.file_bytes == Path(path).stat().st_size == report.record_bytes + report.meta_bytes
    about = anyrecord.info(path)
    assert (about.records, about.chunks, about.file_bytes) == (report.records, report.chunks, report.file_bytes)
    assert about.record_bytes == report.record_bytes
    assert about.decoded_bytes in (None, report.decoded_bytes)


def test_no_records_are_an_empty_sequence(case: Case) -> None:
    write(f"none{case.suffix}", [], case)
    with anyrecord.open(f"none{case.suffix}") as records:
        assert len(records) == 0
        assert not records
        assert list(records) == list(reversed(records)) == records[[]] == []
        assert list(records.batches(3)) == []
        assert b"" not in records
        assert list(records + records) == []
        for index in (0, -1):
            with pytest.raises(IndexError):
                records[index]
    about, report = anyrecord.info(f"none{case.suffix}"), anyrecord.verify(f"none{case.suffix}")
    assert (about.records, about.chunks, about.record_bytes, about.decoded_bytes) == (0, 0, 0, 0)
    assert (report.records, report.chunks, report.record_bytes, report.decoded_bytes) == (0, 0, 0, 0)
    assert report.meta_bytes == report.file_bytes == about.file_bytes


@pytest.mark.parametrize("case", CASES, ids=str)
@given(
    records=st.lists(st.binary(max_size=40), max_size=30),
    data=st.data(),
    announced=st.booleans(),
    threads=st.integers(0, 2),
)
@settings(max_examples=80, deadline=None)
def test_any_records_come_back_as_they_were(
    case: Case, records: list[bytes], data: st.DataObject, announced: bool, threads: int
) -> None:
    file = io.BytesIO()
    expected_number = len(records) if announced else None
    with anyrecord.create(
        file, format=case.format.name, num_records=expected_number, threads=threads, **case.options
    ) as out:
        out.write_many(records)
    # Without records nothing in the bytes tells the format, where a file of 0 bytes is one.
    format = case.format.name if case.format.empty_file_is_valid and not records else None
    with anyrecord.open(file, format=format) as found:
        assert list(found) == records
        if records:
            indices = data.draw(st.lists(st.integers(-len(records), len(records) - 1), max_size=20))
            assert found[indices] == [records[i] for i in indices]
            as_array: Any = np.array(indices, np.int64)
            assert found[as_array] == [records[i] for i in indices]
    about, report = anyrecord.info(file, format=format), anyrecord.verify(file, format=format)
    assert report.ok
    assert (about.records, about.chunks, about.record_bytes) == (report.records, report.chunks, report.record_bytes)
    assert report.record_bytes + report.meta_bytes + report.unused_bytes == report.file_bytes
