"""Going through records that share large chunks: several threads decode a chunk each, and each one is decoded once."""

from __future__ import annotations

import itertools
import random
from functools import cache
from pathlib import Path
from typing import Literal

import anyrecord
import pytest
from anyrecord import RecordError

GROUP, CHUNKS = 64, 5
COUNT = GROUP * CHUNKS - 10  # the last chunk has fewer
SIZE = 100_000
CHUNK_BYTES = GROUP * SIZE


@cache
def record(index: int) -> bytes:
    """Half of it cannot be compressed, so a chunk is enough work for a thread."""
    return b"%08d" % index + random.Random(index).randbytes(SIZE // 2) + bytes(SIZE // 2 - 8)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "data.array_record"
    write(path)
    return path


def write(path: Path, codec: Literal["zstd", "none"] = "zstd", shards: int | None = None) -> None:
    with anyrecord.create(path, codec=codec, group_size=GROUP, shards=shards, durable=False) as out:
        out.write_many(map(record, range(COUNT)))


@pytest.mark.parametrize("threads", [1, 2, 3, 9])
@pytest.mark.parametrize("chunks", [1, 2, 3, 10])
def test_each_chunk_is_decoded_once(path: Path, threads: int, chunks: int) -> None:
    records = anyrecord.open(path, threads=threads, cache_bytes=chunks * CHUNK_BYTES * 5 // 4)
    opened = records.stats().requests
    for index, found in enumerate(records):
        assert found == record(index)
    assert index == COUNT - 1
    assert records.stats().requests - opened == CHUNKS


@pytest.mark.parametrize(("threads", "at_once"), [(1, 1), (2, 2), (3, 3), (9, CHUNKS - 1)])
def test_after_the_first_chunk_there_are_as_many_at_once_as_threads(path: Path, threads: int, at_once: int) -> None:
    records = anyrecord.open(path, threads=threads)
    opened = records.stats().requests
    iterator = iter(records)
    assert len(list(itertools.islice(iterator, GROUP))) == GROUP
    assert records.stats().requests - opened == 1, "one who reads a few does not pay for more"
    assert next(iterator) == record(GROUP)
    assert records.stats().requests - opened == 1 + at_once


@pytest.mark.parametrize("chunks", [0, 1])
def test_chunks_that_would_push_each_other_out_of_the_cache_are_decoded_alone(path: Path, chunks: int) -> None:
    records = anyrecord.open(path, threads=4, cache_bytes=chunks * CHUNK_BYTES * 5 // 4)
    assert list(records) == [record(index) for index in range(COUNT)]


@pytest.mark.parametrize(
    "part",
    [slice(None, None, -1), slice(1, None, 2), slice(70, 200), slice(5, 6)],
    ids="{0.start}-{0.stop}-{0.step}".format,
)
def test_any_part_gives_the_same_records(path: Path, part: slice) -> None:
    expected = [record(index) for index in range(COUNT)[part]]
    assert list(anyrecord.open(path, threads=3)[part]) == expected


def test_shuffled_records_and_shards_give_the_same_records(tmp_path: Path) -> None:
    write(tmp_path / "data.array_record", shards=2)
    records = anyrecord.open(f"{tmp_path / 'data.array_record'}@2", threads=3)
    expected = [records[index] for index in range(COUNT)]
    assert sorted(expected) == [record(index) for index in range(COUNT)]
    assert list(records) == expected
    assert sorted(records.shuffle(seed=1)) == sorted(expected)
    iterator = iter(records)
    assert list(itertools.islice(iterator, 100)) == expected[:100]
    assert list(records.resume(iterator.state_dict())) == expected[100:]


def test_damage_in_a_chunk_that_was_decoded_early_is_told_when_its_records_are_read(tmp_path: Path) -> None:
    path = tmp_path / "data.array_record"
    write(path, codec="none")
    data = bytearray(path.read_bytes())
    data[data.index(record(2 * GROUP)[:800]) + 9] ^= 1
    path.write_bytes(data)
    found: list[bytes] = []
    with pytest.raises(RecordError) as caught:
        found.extend(anyrecord.open(path, threads=2))
    assert caught.value.record == 2 * GROUP
    good = [record(index) for index in range(COUNT) if index // GROUP != 2]
    with pytest.warns(anyrecord.DamageWarning):
        assert list(anyrecord.open(path, threads=2, on_error="skip")) == good
