"""Closed records are closed, whichever way they are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyrecord
import pytest
from anyrecord import ClosedError, MappedRecords, Records
from turns import turn

from conformance.storages import RECORDS, Stored

READS: dict[str, Callable[[Any], Any]] = {
    "by number": lambda records: records[0],
    "from the end": lambda records: records[-1],
    "by list": lambda records: records[[0, 1]],
    "by range": lambda records: records[range(2)],
    "as PyTorch does": lambda records: records.__getitems__([0]),
    "as Grain does": lambda records: records._getitems([0]),
    "by a new iterator": lambda records: next(iter(records)),
    "backwards": lambda records: next(reversed(records)),
    "into a list": list,
    "in batches": lambda records: next(iter(records.batches(2))),
    "by contents": lambda records: b"x" in records,
    "index": lambda records: records.index(b"x"),
    "count": lambda records: records.count(b"x"),
    "mapped": lambda records: records.map(len)[0],
    "all of them mapped": lambda records: list(records.map(len)),
    "packed": lambda records: records.read_packed([0]),
    "in packed batches": lambda records: next(iter(records.batches(2, packed=True))),
    "into a buffer": lambda records: records.read_into(bytearray(100), [0]),
    "of a slice": lambda records: records[1:][0],
    "by with": lambda records: records.__enter__(),
}


def test_a_read_after_close_is_a_closed_error(stored: Stored) -> None:
    for name, read in READS.items():
        with turn(name), stored.opened() as records:
            read(records)
            records.close()
            with pytest.raises(ClosedError, match="closed") as caught:
                read(records)
            assert isinstance(caught.value, ValueError)


def test_slices_are_closed_with_their_records(stored: Stored) -> None:
    for name, read in READS.items():
        with turn(name), stored.opened() as records:
            part = records[1:30][::-1]
            mapped = part.map(len)
            records.close()
            assert part.closed
            with pytest.raises(ClosedError):
                read(part)
            with pytest.raises(ClosedError):
                mapped[0]


def test_records_are_closed_with_their_slices(records: Records) -> None:
    records[3:9].close()
    assert records.closed
    with pytest.raises(ClosedError):
        records[0]


def test_iterators_stop_with_an_error_at_the_latest_when_they_read_again(records: Records) -> None:
    iterator, batches, untouched = iter(records), iter(records.batches(3)), iter(records)
    next(iterator)
    next(batches)
    records.close()
    with pytest.raises(ClosedError):
        list(iterator)
    with pytest.raises(ClosedError):
        next(batches)
    with pytest.raises(ClosedError):
        next(untouched)


def test_the_end_of_a_with_block_closes(stored: Stored) -> None:
    with stored.source() as source:
        with anyrecord.open(source) as records:
            assert records[1] == RECORDS[1]
            assert not records.closed
        assert records.closed
        with pytest.raises(ClosedError):
            records[1]


def test_an_error_in_a_with_block_closes_and_comes_out(stored: Stored) -> None:
    with stored.source() as source, pytest.raises(KeyError, match="mine"), anyrecord.open(source) as records:
        raise KeyError("mine")
    assert records.closed


def test_mapped_records_are_closed_as_records_are(stored: Stored) -> None:
    with stored.source() as source:
        with anyrecord.open(source).map(len) as mapped:
            assert (mapped[1], mapped.closed) == (len(RECORDS[1]), False)
            views: list[MappedRecords[Any]] = [mapped[3:], mapped.shuffle(1), mapped.shard(0, of=2), mapped.map(str)]
        assert mapped.closed
        for closed in (mapped, *views):
            assert closed.closed
            for name in ("by number", "by list", "as PyTorch does", "by a new iterator", "in batches", "by with"):
                with pytest.raises(ClosedError):
                    READS[name](closed)
        mapped.close()
        with pytest.raises(KeyError, match="mine"), anyrecord.open(source).map(len) as again:
            raise KeyError("mine")
        assert again.closed


def test_closing_twice_is_closing_once(records: Records) -> None:
    records.close()
    records.close()
    assert records.closed


def test_closed_records_still_tell_what_they_were(stored: Stored, records: Records) -> None:
    said = repr(records)
    records.close()
    assert repr(records) == said
    assert records.paths == list(stored.files)
    assert len(records) == len(RECORDS)


def test_others_of_the_same_files_stay_open(stored: Stored, records: Records) -> None:
    with stored.opened() as other:
        records.close()
        assert list(other) == list(RECORDS)


def test_a_file_object_stays_the_callers_to_close(stored: Stored) -> None:
    with stored.source() as source:
        anyrecord.open(source).close()
        if hasattr(source, "closed"):
            assert not source.closed
