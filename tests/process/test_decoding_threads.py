"""Threads that decode: the same records from any number of them, and none where others have the cores."""

from __future__ import annotations

import multiprocessing
import os
import random
from pathlib import Path
from typing import Literal

import anyrecord
import pytest
from anyrecord import ChecksumError, Records
from children import LIMIT_SECONDS, forked

COUNT = 3000


def record(index: int) -> bytes:
    return b"%d " % index * (index % 700)


def threads() -> int:
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))


def read_much(records: Records) -> int:
    """How many threads more there are, once there was enough to do for several."""
    before = threads()
    assert records[range(COUNT)] == [record(index) for index in range(COUNT)]
    return threads() - before


@pytest.fixture(scope="module", params=[1, 64], ids="group of {}".format)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decoding") / "data.array_record"
    with anyrecord.create(path, codec="zstd", group_size=request.param, durable=False) as out:
        out.write_many(map(record, range(COUNT)))
    return path


@pytest.mark.parametrize("io", ["map", "plain"])
@pytest.mark.parametrize("number", [0, 1, 2, 3, 16])
def test_records_are_the_same_whoever_decodes_them(path: Path, number: int, io: Literal["map", "plain"]) -> None:
    records = anyrecord.open(path, threads=number, io=io, cache_bytes=0)
    order = random.Random(number).choices(range(COUNT), k=2 * COUNT)
    expected = [record(index) for index in order]
    assert records[order] == expected
    assert list(records) == [record(index) for index in range(COUNT)]
    out = bytearray(sum(map(len, expected)))
    records.read_into(out, order)
    assert out == b"".join(expected)
    assert records.read_packed(order).tolist() == expected


def test_a_large_batch_is_decoded_by_as_many_threads_as_asked_for(path: Path) -> None:
    records = anyrecord.open(path, threads=3)
    assert forked(lambda: (read_much(records), read_much(records))) == (2, 0), "besides the one that asks"


@pytest.mark.parametrize("number", [0, 1])
def test_no_threads_are_the_calling_one_alone(path: Path, number: int) -> None:
    records = anyrecord.open(path, threads=number)
    assert forked(lambda: read_much(records)) == 0


@pytest.mark.parametrize("io", ["map", "plain", "direct"])
@pytest.mark.parametrize("count", [250, COUNT])
def test_however_a_file_is_read_its_batches_are_decoded_by_several(
    tmp_path: Path, count: int, io: Literal["map", "plain", "direct"]
) -> None:
    """Also a batch that is fetched with one request."""
    path = tmp_path / "data.array_record"
    with anyrecord.create(path, codec="zstd", group_size=1, durable=False) as out:
        out.write_many(map(record, range(COUNT)))
    records = anyrecord.open(path, threads=3, io=io)
    last = range(COUNT - count, COUNT)

    def read() -> tuple[bool, int]:
        before = threads()
        return records[last] == [record(index) for index in last], threads() - before

    assert forked(read) == (True, 2)


def test_one_record_and_a_small_batch_wake_nobody(path: Path) -> None:
    records = anyrecord.open(path, threads=2)
    assert forked(lambda: (records[7], records[[1, 2]], threads())) == (record(7), [record(1), record(2)], 1)


def test_a_forked_child_decodes_alone_unless_it_is_told_otherwise(path: Path) -> None:
    records = anyrecord.open(path)
    read_much(records)
    assert forked(lambda: read_much(records)) == 0


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_worker_of_multiprocessing_decodes_alone(path: Path, method: str) -> None:
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply_async(read_much, (anyrecord.open(path),)).get(LIMIT_SECONDS) == 0
        assert pool.apply_async(open_and_read_much, (str(path),)).get(LIMIT_SECONDS) == 0


def open_and_read_much(path: str) -> int:
    return read_much(anyrecord.open(path))


@pytest.mark.parametrize("number", [-1, 1025])
def test_an_impossible_number_of_threads_is_refused(path: Path, number: int) -> None:
    with pytest.raises(ValueError, match="threads"):
        anyrecord.open(path, threads=number)


def test_of_several_bad_records_the_first_in_the_batch_is_told(tmp_path: Path) -> None:
    path = tmp_path / "data.ffr"
    with anyrecord.create(path, durable=False) as out:
        out.write_many([b"%07d" % index * 1000 for index in range(1000)])
    data = bytearray(path.read_bytes())
    begin = len(data) - 7000 * 1000
    for bad in (700, 100, 900):
        data[begin + 7000 * bad + 1000] ^= 1
    path.write_bytes(data)
    records = anyrecord.open(path, threads=4)
    for order in (range(1000), range(999, -1, -1), [5, 700, 100]):
        with pytest.raises(ChecksumError) as caught:
            records[order]
        assert caught.value.record == next(index for index in order if index in (100, 700, 900))


def test_the_pool_is_not_made_by_opening(path: Path) -> None:
    assert forked(lambda: (len(anyrecord.open(path, threads=2)), threads())) == (COUNT, 1)
