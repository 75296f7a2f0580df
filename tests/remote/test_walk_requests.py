"""How many requests, and how many waves of them, walks through objects take, and the first batch of a worker."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyrecord
import pytest

from remote.servers import Played, faults

from .test_requests import FORMATS, RECORDS, SUFFIX, WITH_TABLE, counted, file_bytes, opened, store_shards

pytestmark = pytest.mark.filterwarnings("ignore:opening searched")
LARGE = [random.Random(number).randbytes(3500) for number in range(1000)]  # 3.5 MB
Walk = Callable[[Any, dict[str, Any], Path], object]
WALKS: dict[str, Walk] = {
    "verify": lambda sources, storage, _: anyrecord.verify(sources, storage=storage).records,
    "salvage": lambda sources, storage, _: anyrecord.salvage(sources, storage=storage).records,
    "convert": lambda sources, storage, folder: (
        anyrecord.convert(sources, folder / "all.tfrecord", storage=storage, overwrite=True).records
    ),
}
SIZES_FIRST = ("salvage", "convert")
"""They ask for the sizes of objects that were not listed."""


@pytest.fixture
def server() -> Iterator[Played]:
    with Played(gate=True) as played:
        yield played


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("walk", WALKS)
def test_small_objects_take_one_request_each_and_come_together(
    server: Played, walk: str, format: str, tmp_path: Path
) -> None:
    store_shards(server, format, 32)
    server.clear()
    assert WALKS[walk](server.url(""), server.storage, tmp_path) == len(RECORDS)
    requests, waves = counted(server)
    assert requests <= 1 + 32
    assert waves <= 2


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("walk", WALKS)
def test_an_object_is_read_once_and_with_few_requests(server: Played, walk: str, format: str, tmp_path: Path) -> None:
    name, data = f"a.{SUFFIX[format]}", file_bytes(format, LARGE)
    server.put(name, data)
    server.clear()
    assert WALKS[walk](server.url(name), server.storage, tmp_path) == len(LARGE)
    assert sum(entry.bytes for entry in server.log) <= 1.1 * len(data)
    requests, waves = counted(server)
    least = 2 + (walk in SIZES_FIRST)  # the part that comes with opening, and the rest
    assert requests <= least + 1
    assert waves <= least + 1


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("walk", WALKS)
def test_a_large_object_is_read_in_large_parts_ahead_of_the_walk(
    server: Played, walk: str, format: str, tmp_path: Path
) -> None:
    name, data = f"a.{SUFFIX[format]}", file_bytes(format, 2 * LARGE)
    server.put(name, data)
    server.clear()
    storage = {**server.storage, "part_size": 500_000}
    assert WALKS[walk](server.url(name), storage, tmp_path) == 2 * len(LARGE)
    passes = 2 if (walk, format) == ("salvage", "recordio") else 1  # it has no table, so its headers are read first
    assert sum(entry.bytes for entry in server.log) <= 1.1 * passes * len(data) + 500_000
    requests, waves = counted(server)
    assert requests <= passes * 20
    assert waves <= passes * 10


def test_an_object_without_a_table_is_not_read_twice_to_count_its_records(server: Played, tmp_path: Path) -> None:
    data = file_bytes("tfrecord", LARGE)
    server.put("a.tfrecord", data)
    server.clear()
    done = anyrecord.convert(server.url("a.tfrecord"), tmp_path / "a.ffr", storage=server.storage)
    assert done.records == len(LARGE)
    assert list(anyrecord.open(tmp_path / "a.ffr")) == LARGE
    assert sum(entry.bytes for entry in server.log) <= 1.1 * len(data)


def test_a_compressed_file_is_read_in_large_parts(server: Played, tmp_path: Path) -> None:
    name = "a.tfrecord.gz"
    with anyrecord.create(tmp_path / name, codec="gzip") as out:
        out.write_many(2 * LARGE)
    server.put(name, (tmp_path / name).read_bytes())
    server.clear()
    assert anyrecord.verify(server.url(name), storage=server.storage)
    requests, _ = counted(server)
    assert requests <= 10


@pytest.mark.parametrize("format", WITH_TABLE)
def test_unpickled_records_open_the_files_of_a_batch_together(server: Played, format: str) -> None:
    names = store_shards(server, format, 64)
    records = pickle.loads(pickle.dumps(opened(server, names)))
    server.clear()
    assert len(records[list(range(0, len(RECORDS), 10))]) == 64
    requests, waves = counted(server)
    assert requests == 128
    assert waves == 2
    one = pickle.loads(pickle.dumps(records))
    server.clear()
    assert one[5] == records[5]
    assert counted(server)[0] <= 3  # nothing but the file of that record


def test_unpickled_records_of_several_data_sets_are_opened_together(server: Played) -> None:
    names = store_shards(server, "ffrecord", 32)
    both = anyrecord.concat([opened(server, names[:16]), opened(server, names[16:])])
    records = pickle.loads(pickle.dumps(both))
    server.clear()
    assert len(records[list(range(0, len(RECORDS), 20))]) == 32
    requests, waves = counted(server)
    assert requests == 64
    assert waves <= 3


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("walk", WALKS)
def test_an_object_that_changes_during_a_walk_is_an_error(walk: str, format: str, tmp_path: Path) -> None:
    name = f"a.{SUFFIX[format]}"
    data, other = file_bytes(format, LARGE), file_bytes(format, LARGE[::-1])
    changed = 0
    with Played() as server:
        storage = {**server.storage, "part_size": 300_000, "max_retries": 0}
        for number in range(2, 16):
            folder = tmp_path / str(number)
            folder.mkdir()
            server.put(name, data)
            server.clear()
            server.play(faults.replaced(other), number=number)
            text = ""
            try:
                records = WALKS[walk](server.url(name), storage, folder)
            except anyrecord.FormatError as error:
                records, text = len(LARGE), str(error)
                changed += 1
            # The last requests may be ahead of what is read.
            assert records == len(LARGE)
            assert not text or ("changed after it was opened" in text and not list(folder.iterdir()))
        assert changed >= 8


def test_a_table_larger_than_the_first_part_takes_two_requests(server: Played) -> None:
    records = [b"%d" % number for number in range(200_000)]
    server.put("a.array_record", file_bytes("array_record", records))
    found = opened(server, ["a.array_record"])
    assert counted(server) == (2, 2)
    assert found[199_999] == b"199999"


def test_an_object_without_suffix_ranges_is_opened_with_two_requests() -> None:
    with Played(gate=True, protocol="azure") as server:
        server.put("a.array_record", file_bytes("array_record", LARGE))
        records = opened(server, ["a.array_record"])
        assert counted(server) == (2, 2)  # its size, and its end
        assert records[600] == LARGE[600]


@pytest.mark.parametrize("format", FORMATS)
def test_an_iteration_reads_ahead_whatever_opening_has_fetched(server: Played, format: str) -> None:
    name = f"a.{SUFFIX[format]}"
    server.put(name, file_bytes(format, LARGE))
    records = opened(server, [name], part_size=300_000)
    before = records.stats().readahead_hits
    assert list(records) == LARGE
    # All but the first records, which are read at once.
    assert records.stats().readahead_hits - before >= 0.98 * sum(map(len, LARGE))
