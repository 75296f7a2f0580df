"""How the public names are used, as a type checker sees it: `make lint` checks this file, and it runs as well."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, assert_type

import anyrecord
import numpy as np
import numpy.typing as npt
import pytest
from anyrecord import (
    Batches,
    BatchIterator,
    Info,
    Limits,
    Location,
    MappedIterator,
    MappedRecords,
    Packed,
    Permutation,
    Records,
    RecordsIterator,
    Report,
    Writer,
)
from anyrecord.sampling import ElasticSampler

Numbers: TypeAlias = "array[int]"  # quoted: before Python 3.12 an array takes no types at run time


@pytest.fixture
def records() -> Records:
    with anyrecord.create("a.ffr") as out:
        out.write_many([b"1", b"2", b"3"])
    return assert_type(anyrecord.open("a.ffr"), Records)


def test_indexing(records: Records) -> None:
    assert_type(records[0], bytes)
    assert_type(records[np.int64(0)], bytes)
    assert_type(records[0:2], Records)
    assert_type(records[::-1][0], bytes)
    assert_type(records[[0, 1]], list[bytes])
    assert_type(records[range(2)], list[bytes])
    assert_type(records[(0, 1)], list[bytes])
    assert_type(records.__getitems__([0, 1]), list[bytes])
    assert_type(len(records), int)
    assert_type(records + records, Records)


def test_iterating(records: Records) -> None:
    assert_type(iter(records), RecordsIterator)
    assert_type(list(records), list[bytes])
    assert_type(reversed(records), Iterator[bytes])
    assert_type(records.batches(2), Batches[list[bytes]])
    assert_type(records.batches(2, drop_last=True), Batches[list[bytes]])
    assert_type(len(records.batches(2)), int)
    assert_type(iter(records.batches(2)), BatchIterator[list[bytes]])
    assert_type(next(iter(records.batches(2))), list[bytes])
    assert_type(records.batches(2, packed=True), Batches[Packed])
    assert_type(next(iter(records.batches(2, packed=True))), Packed)
    assert_type(records.batches(2, packed=bool(records)), Batches[Any])
    for batch in records.batches(2):
        assert_type(batch, list[bytes])
    for record in records:
        assert_type(record, bytes)


def test_mapping(records: Records) -> None:
    numbers = assert_type(records.map(int), MappedRecords[int])
    assert_type(numbers[0], int)
    assert_type(numbers[0:2], MappedRecords[int])
    assert_type(numbers[[0, 1]], list[int])
    assert_type(numbers.__getitems__([0, 1]), list[int])
    assert_type(numbers.map(str), MappedRecords[str])
    assert_type(numbers.map(str)[0], str)
    assert_type(numbers.batches(2), Batches[list[int]])
    assert_type(iter(numbers), MappedIterator[int])
    assert_type(list(numbers), list[int])

    def first(values: Sequence[int]) -> int:
        return values[0]

    assert first(numbers) == 1
    with numbers[1:] as part:
        assert_type(part, MappedRecords[int])
    assert_type(part.closed, bool)


def test_ordering(records: Records) -> None:
    assert_type(records.shuffle(1), Records)
    assert_type(records.shuffle(seed=1, epoch=2, window=2, block=2), Records)
    assert_type(records.shard(np.int64(0), of=2), Records)
    assert_type(anyrecord.concat([records, records[:1]]), Records)
    assert_type(anyrecord.mix([records, records], np.array([0.5, 0.5]), seed=1), Records)
    numbers = records.map(int)
    assert_type(numbers.shuffle(1).shard(0, of=2), MappedRecords[int])
    assert_type(anyrecord.concat([numbers, numbers]), MappedRecords[int])
    assert_type(anyrecord.mix([numbers, numbers], [1, 2], until="all"), MappedRecords[int])
    state = assert_type(iter(records).state_dict(), dict[str, int])
    assert_type(records.resume(state), RecordsIterator)
    assert_type(numbers.resume(state), MappedIterator[int])
    batches = iter(records.batches(2, resume=state))
    assert_type(batches.state_dict(), dict[str, int])
    for iterator in (iter(records), iter(numbers), batches):
        iterator.load_state_dict(state)
    permutation = Permutation(10, seed=1)
    assert_type(permutation[0], int)
    assert_type(permutation.take(range(3)), "Numbers")
    sampler = ElasticSampler(records, seed=1, tail="drop")
    assert_type(next(iter(sampler)), int)
    assert_type(sampler.state_dict(), dict[str, int])


def test_asking(records: Records) -> None:
    assert_type(records.paths, list[str])
    assert_type(records.format, str)
    assert_type(records.closed, bool)
    assert_type(records.sizes(), "Numbers | None")
    assert_type(records.locate(0), Location)
    path, chunk, row = records.locate(0)
    assert_type(path, str)
    assert_type(chunk, int)
    assert_type(row, int)
    assert_type(records.index(b"1"), int)
    assert_type(records.count(b"1"), int)
    assert_type(b"1" in records, bool)
    packed = assert_type(records.read_packed([0, np.int64(1)]), Packed)
    assert_type(records.read_packed(slice(2)), Packed)
    assert_type(packed.data, memoryview)
    assert_type(packed.offsets, Numbers)
    assert_type(packed.num_records, int)
    assert_type(packed.record(np.int8(-1)), memoryview)
    assert_type(packed.tolist(), list[bytes])
    assert_type(bytes(packed), bytes)
    data, offsets = packed
    assert (bytes(data), list(offsets)) == (b"12", [0, 1, 2])
    assert_type(packed.numpy(), tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]])
    assert_type(records.read_into(bytearray(9), [0]), Numbers)
    assert_type(records.read_into(np.zeros(9, np.uint8), range(1)), Numbers)


def test_opening_everything_that_can_be_opened(records: Records) -> None:
    path = Path("a.ffr")
    assert_type(anyrecord.open(path), Records)
    assert_type(anyrecord.open(["a.ffr", "a.ffr"]), Records)
    assert_type(anyrecord.open([path, path]), Records)
    assert_type(anyrecord.open(path.read_bytes()), Records)
    assert_type(anyrecord.open(memoryview(path.read_bytes())), Records)
    assert_type(anyrecord.open(io.BytesIO(path.read_bytes())), Records)
    with path.open("rb") as file, anyrecord.open(file) as of_file:
        assert_type(of_file, Records)
    anyrecord.open(
        path, format="ffrecord", checksums=False, table="disk", limits=Limits(open_files=1), cache_bytes=0
    ).close()


def test_creating(tmp_path: Path) -> None:
    out = assert_type(anyrecord.create("b.ffr", overwrite=True, durable=False, shards=2, threads=1), Writer)
    with out as inside:
        assert_type(inside, Writer)
        for record in (b"bytes", bytearray(b"array"), memoryview(b"view"), np.zeros(3, np.uint8).data):
            out.write(record)
        out.write_many([b"a", b"b"])
        out.write_many(np.zeros((2, 3), np.uint8))
    assert_type(out.num_records, int)
    assert_type(out.num_bytes, int)
    assert_type(out.closed, bool)
    assert_type(out.format, str)
    assert (out.num_records, out.closed) == (8, True)
    with anyrecord.create(io.BytesIO(), format="ffrecord") as to_memory:
        to_memory.write(b"a")
    with (tmp_path / "c.ffr").open("wb") as file:
        anyrecord.create(file, format="ffrecord", num_records=0).close()


def test_files_as_a_whole(records: Records) -> None:
    about = assert_type(anyrecord.info("a.ffr"), Info)
    assert_type(about.records, int)
    assert_type(about.record_bytes, int)
    assert_type(about.decoded_bytes, int | None)
    assert_type(about.files, tuple[anyrecord.FileInfo, ...])
    assert_type(about.files[0].records, int)
    assert_type(about.ratio, float | None)
    assert_type(about.paths, tuple[str, ...])
    report = assert_type(anyrecord.verify("a.ffr", progress=lambda done, total: None), Report)
    assert_type(report.ok, bool)
    assert_type(report.problems, tuple[anyrecord.RecordError, ...])
    assert_type(report.unused, tuple[tuple[str, int, int], ...])


def test_errors_have_typed_places() -> None:
    with pytest.raises(anyrecord.FormatError) as caught:
        anyrecord.open(b"not a record file at all")
    error = assert_type(caught.value, anyrecord.FormatError)
    assert_type(error.path, str | None)
    assert_type(error.offset, int | None)
    assert_type(error.record, int | None)
    assert_type(error.expected, str | None)
    assert_type(error.found, str | None)


def test_what_a_type_checker_must_refuse(records: Records) -> None:
    """Each of these is an unused ignore, and so an error, should the checker ever let it pass."""
    with pytest.raises(TypeError):
        records["0"]  # type: ignore[index]
    with pytest.raises(TypeError):
        records[1.5]  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        anyrecord.open("a.ffr", colour="red")  # type: ignore[call-arg]
    with pytest.raises(ValueError):
        anyrecord.open("a.ffr", table="tape")  # type: ignore[arg-type]
    with pytest.raises(TypeError), anyrecord.create("t.ffr") as out:
        out.write("text")  # type: ignore[arg-type]


@pytest.mark.framework
def test_loaders(records: Records) -> None:
    from anyrecord.torch import Dataset, Loader, PackedTensors

    assert_type(Loader(records, 2), Loader[list[bytes]])
    assert_type(Loader("a.ffr", 2, shuffle=True, seed=1), Loader[list[bytes]])
    assert_type(Loader(records, 2, decode=int, threads=0), Loader[list[int]])
    assert_type(Loader(records.map(int), 2), Loader[list[int]])
    assert_type(Loader(records, 2, collate="packed"), Loader[PackedTensors])
    assert_type(Loader(records, 2, decode=int, collate=sum), Loader[int])
    assert_type(Dataset("a.ffr", decode=int), Dataset[int])
    for batch in Loader(records, 2, decode=int):
        assert_type(batch, list[int])
