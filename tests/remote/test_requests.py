"""How many requests, and how many waves of them, reading takes. A wave is what is in flight together."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import anyrecord
import pytest
from anyrecord import Records

from remote.servers import Played

from .files import bytes_of

RECORDS = [random.Random(number).randbytes(1000 + number % 97) for number in range(640)]
FORMATS = {
    "ffrecord": {},
    "array_record": {"group_size": 1},
    "recordio": {"chunk_bytes": 4096},
    "tfrecord": {},
}
SUFFIX = {"ffrecord": "ffr", "array_record": "array_record", "recordio": "recordio", "tfrecord": "tfrecord"}
WITH_TABLE = ("ffrecord", "array_record")
pytestmark = pytest.mark.filterwarnings("ignore:opening searched")


def file_bytes(format: str, records: list[bytes]) -> bytes:
    return bytes_of(format, records, **FORMATS[format])


@pytest.fixture
def server() -> Iterator[Played]:
    with Played(gate=True) as played:
        yield played


def counted(server: Played) -> tuple[int, int]:
    """Requests and waves since the last call."""
    counts = server.requests, server.waves
    server.clear()
    return counts


def opened(server: Played, names: list[str], **storage: Any) -> anyrecord.Records:
    return anyrecord.open([server.url(name) for name in names], storage={**server.storage, **storage})


def store_shards(server: Played, format: str, count: int) -> list[str]:
    names = [f"a-{number:05}-of-{count:05}.{SUFFIX[format]}" for number in range(count)]
    for number, name in enumerate(names):
        server.put(name, file_bytes(format, RECORDS[number::count]))
    return names


@pytest.mark.parametrize("format", WITH_TABLE)
def test_one_request_opens_a_file_and_one_reads_a_record(server: Played, format: str) -> None:
    name = f"a.{SUFFIX[format]}"
    server.put(name, file_bytes(format, RECORDS))
    records = opened(server, [name])
    assert counted(server) == (1, 1)
    assert records[17] == RECORDS[17]
    assert counted(server) == (1, 1)


def test_a_file_without_a_table_is_opened_with_few_requests(server: Played) -> None:
    for format in ("recordio", "tfrecord"):
        name = f"a.{SUFFIX[format]}"
        server.put(name, file_bytes(format, RECORDS))
        records = opened(server, [name])
        requests, waves = counted(server)
        assert max(requests, waves) <= 3, format  # the beginning, the missing side index, all headers
        assert records[5] == RECORDS[5]
        counted(server)


@pytest.mark.parametrize("format", WITH_TABLE)
def test_a_batch_of_one_file_is_one_wave(server: Played, format: str) -> None:
    name = f"a.{SUFFIX[format]}"
    server.put(name, file_bytes(format, RECORDS))
    records = opened(server, [name])
    counted(server)
    chosen = random.Random(1).sample(range(len(RECORDS)), 256)
    assert records[chosen] == [RECORDS[index] for index in chosen]
    requests, waves = counted(server)
    assert requests <= 40
    assert waves == 1
    far = opened(server, [name], merge_gap=0)
    counted(server)
    chosen = [0, 100, 200, 300]
    assert far[chosen] == [RECORDS[index] for index in chosen]
    assert counted(server) == (4, 1)


@pytest.mark.parametrize("format", WITH_TABLE)
def test_a_batch_of_many_files_is_one_wave(server: Played, format: str) -> None:
    names = store_shards(server, format, 64)
    records = opened(server, names)
    requests, waves = counted(server)
    assert requests == 64
    assert waves == 1
    order = [index for shard in range(64) for index in range(shard, len(RECORDS), 64)]
    chosen = random.Random(1).sample(range(len(RECORDS)), 256)
    touched = len({order[index] % 64 for index in chosen})
    assert records[chosen] == [RECORDS[order[index]] for index in chosen]
    requests, waves = counted(server)
    assert touched <= requests <= 2 * touched
    assert waves == 1


def test_a_thousand_files_are_opened_with_a_thousand_requests(server: Played) -> None:
    file = file_bytes("ffrecord", RECORDS[:2])
    names = [f"{number}.ffr" for number in range(1000)]
    for name in names:
        server.put(name, file)
    records = opened(server, names)
    requests, waves = counted(server)
    assert len(records) == 2000
    assert requests == 1000
    assert waves <= 5  # 256 at once


@pytest.mark.parametrize("format", FORMATS)
def test_a_scan_reads_every_byte_about_once(server: Played, format: str) -> None:
    name, data = f"a.{SUFFIX[format]}", file_bytes(format, RECORDS)
    server.put(name, data)
    records = opened(server, [name])
    server.clear()
    assert list(records) == RECORDS
    assert sum(entry.bytes for entry in server.log) <= 1.02 * len(data) + 10_000
    requests, waves = counted(server)
    assert requests <= 4
    assert waves <= 3


def test_a_large_record_is_fetched_in_parts_together(server: Played) -> None:
    record = random.Random(3).randbytes(1_000_000)
    server.put("a.ffr", file_bytes("ffrecord", [b"x" * 200_000, record]))
    records = opened(server, ["a.ffr"], part_size=100_000)
    counted(server)
    assert records[1] == record
    assert counted(server) == (10, 1)


def test_a_large_record_in_parts_stays_below_the_bytes_in_flight(server: Played) -> None:
    record = random.Random(3).randbytes(1_000_000)
    server.put("a.ffr", file_bytes("ffrecord", [b"x" * 200_000, record]))
    records = opened(server, ["a.ffr"], part_size=100_000, max_bytes_in_flight=250_000)
    counted(server)
    assert records[1] == record
    requests, waves = counted(server)
    assert requests == 10
    assert 5 <= waves <= 10


def test_a_side_index_saves_the_headers(server: Played, tmp_path: Any) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(file_bytes("tfrecord", RECORDS))
    index = anyrecord.build_index(path)[0]
    server.put("a.tfrecord", path.read_bytes())
    assert index is not None
    server.put(".a.tfrecord.index", (tmp_path / ".a.tfrecord.index").read_bytes())
    records = opened(server, ["a.tfrecord"])
    requests, _ = counted(server)
    assert requests <= 4
    assert records[600] == RECORDS[600]


ITERATIONS: dict[str, Callable[[Records], Iterator[bytes]]] = {
    "records": iter,
    "batches": lambda records: (record for batch in records.batches(10) for record in batch),
    "packed batches": lambda records: (record for p in records.batches(10, packed=True) for record in p.tolist()),
}


@pytest.mark.parametrize("way", ITERATIONS)
def test_an_iteration_fetches_ahead_while_the_consumer_works(server: Played, way: str) -> None:
    server.put("a.ffr", file_bytes("ffrecord", RECORDS))
    records = opened(server, ["a.ffr"], merge_gap=0, part_size=100_000)
    read = ITERATIONS[way](records)
    assert [next(read) for _ in range(300)] == RECORDS[:300]
    stats = dict(records._source.stats())
    assert stats["readahead_hits"] > 200_000


@pytest.mark.parametrize("seed", [1, 2])
def test_a_shuffled_iteration_reads_each_byte_about_once(server: Played, seed: int) -> None:
    names = store_shards(server, "ffrecord", 4)
    records = opened(server, names, merge_gap=0).shuffle(seed)
    server.clear()
    assert sorted(records) == sorted(RECORDS)
    assert sum(entry.bytes for entry in server.log) <= 1.02 * sum(map(len, RECORDS))


def test_what_an_iteration_has_fetched_ahead_ends_with_it(server: Played) -> None:
    names = store_shards(server, "ffrecord", 4)
    records = opened(server, names)
    reads = [iter(records[shard * 160 :]) for shard in range(4)]
    for read in reads:
        [next(read) for _ in range(20)]
    held = records._source.ahead_bytes()
    assert held > 0
    reads.clear()
    del read
    assert records._source.ahead_bytes() == 0


def test_iterations_share_what_is_fetched_ahead(server: Played) -> None:
    server.put("a.ffr", file_bytes("ffrecord", RECORDS))
    records = opened(server, ["a.ffr"], readahead_bytes=200_000, part_size=20_000)
    reads = [iter(records) for _ in range(8)]
    for number in range(len(RECORDS)):
        assert {next(read) for read in reads} == {RECORDS[number]}
    assert records.stats().readahead_bytes <= 8 * 1.1 * sum(map(len, RECORDS))
    assert records._source.ahead_bytes() <= 400_000


@pytest.mark.parametrize(("time", "is_short"), [("1us", True), ("1h", False)])
def test_an_iteration_fetches_no_more_than_it_reads_in_some_time(server: Played, time: str, is_short: bool) -> None:
    records = [bytes([number % 251]) * 100_000 for number in range(160)]
    server.put("a.ffr", file_bytes("ffrecord", records))
    remote = opened(server, ["a.ffr"], readahead_time=time, part_size=1 << 20)
    held = []
    for number, record in enumerate(remote[:100]):
        assert record == records[number]
        held.append(remote._source.ahead_bytes())
    assert (max(held) < 4 << 20) == is_short
