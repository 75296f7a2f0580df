"""`ArrayRecordReader`, call by call, beside the original."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .sides import Case, Side, assert_same, numbers, ours

INDICES: dict[str, Any] = {
    "list": [0, 9, 3],
    "repeats": [5, 5, 5],
    "tuple": (0, 1),
    "range": range(3),
    "numpy": np.array([1, 2]),
    "numpy small": np.array([1, 2], "u1"),
    "numpy bools": np.array([True, False]),
    "numpy objects": np.array([1], dtype=object),
    "numpy empty": np.array([]),
    "numpy floats": np.array([1.0]),
    "numpy negative": np.array([-1]),
    "numpy 2-d": np.array([[1]]),
    "numpy 0-d": np.array(1),
    "numpy scalars": [np.int64(3), np.uint8(2)],
    "bools": [True, False],
    "numpy bool scalars": [np.bool_(True)],
    "array": array("q", [1]),
    "bytearray": bytearray(b"\1\2"),
    "memoryview": memoryview(b"\1\2"),
    "empty": [],
    "set": {1},
    "dict": {1: 2},
    "str": "12",
    "bytes": b"\1",
    "int": 1,
    "None": None,
    "negative": [-1],
    "negative later": [0, -1],
    "floats": [1.0],
    "strings": ["1"],
    "Nones": [None],
    "behind the end": [10],
    "some behind the end": [0, 10, 12],
    "64 bits": [2**63],
    "65 bits": [2**64],
}
RANGES: list[tuple[Any, ...]] = [
    (1, 2), (0, 10), (0, 11), (-2, -1), (-2, 0), (-10, 10), (-11, 2), (5, 5), (7, 3), (-(2**31), 1), (0.0, 1),
    (False, True), (np.int64(1), np.int32(3)), (0, None), ("0", "1"), (0, 1, 2),
]  # fmt: skip
POSITIONS = [3, 0, 10, -1, 100, 2**63 - 1, -(2**63), 2**63, 1.0, "1", None, True, np.int8(2), np.array(2)]


def unlinked(side: Side) -> list[Any]:
    reader = side.reader()
    os.unlink(side.path())
    return [reader.read(), reader.read([9])]


CASES: dict[str, Case] = {
    "state": lambda side: [
        (r := side.reader()).ok(), r.is_open(), r.num_records(), r.record_index(), r.writer_options_string()
    ],
    "in sequence": lambda side: [(r := side.reader()).read(), r.read(), r.record_index()],
    "to the end": lambda side: [(r := side.reader()).seek(9), r.read(), r.record_index(), r.ok()],
    "behind the end": lambda side: [(r := side.reader()).seek(10), r.read()],
    "all": lambda side: side.reader().read_all(),
    "a batch leaves the position": lambda side: [(r := side.reader()).read([7]), r.read(3, 5), r.read_all(), r.read()],
    "iterator": lambda side: side.reader().read(iter([1])),
    "keyword": lambda side: side.reader().read(indices=[1]),
    "seek keyword": lambda side: side.reader().seek(index=1),
    "closed": lambda side: [
        (r := side.reader()).close(), r.close(), r.ok(), r.is_open(), r.num_records(), r.record_index(),
        r.writer_options_string(),
    ],
    "closed read": lambda side: [(r := side.reader()).close(), r.read()],
    "closed read nothing": lambda side: [(r := side.reader()).close(), r.read([])],
    "closed read range": lambda side: [(r := side.reader()).close(), r.read(0, 1)],
    "closed read all": lambda side: [(r := side.reader()).close(), r.read_all()],
    "closed seek": lambda side: [(r := side.reader()).close(), r.seek(1)],
    "empty": lambda side: [(r := side.reader([])).ok(), r.num_records(), r.read_all(), r.read([]), r.seek(3)],
    "empty read": lambda side: side.reader([]).read(),
    "empty range": lambda side: side.reader([]).read(0, 0),
    "len": lambda side: len(side.reader()),
    "index": lambda side: side.reader()[0],
    "iter": lambda side: iter(side.reader()),
    "with": lambda side: side.reader().__enter__,
    "attributes": lambda side: setattr(side.reader(), "other", 1),
    "pickle": lambda side: __import__("pickle").dumps(side.reader()),
    "copy": lambda side: __import__("copy").copy(side.reader()),
    "subclass": lambda side: type("S", (side.module.ArrayRecordReader,), {})(side.write([b"1"])).num_records(),
    "bytes path": lambda side: side.module.ArrayRecordReader(side.write([b"1"]).encode()).read_all(),
    "Path": lambda side: side.module.ArrayRecordReader(Path(side.write([b"1"]))),
    "no path": lambda side: side.module.ArrayRecordReader(),
    "bytes options": lambda side: side.module.ArrayRecordReader(side.write([b"1"]), b"max_parallelism:1").read(),
    "options None": lambda side: side.module.ArrayRecordReader(side.write([b"1"]), None),
    "keywords": lambda side: side.module.ArrayRecordReader(
        path=side.write([b"1"]), options="", file_reader_buffer_size=32768, file_options=None, other=1
    ).read_all(),
    "buffer size": lambda side: side.module.ArrayRecordReader(side.write([b"1"]), file_reader_buffer_size="x"),
    "unlinked": unlinked,
}  # fmt: skip
MISSING: dict[str, Case] = {
    "state": lambda side: [
        (r := side.module.ArrayRecordReader("/missing/f")).ok(), r.is_open(), r.num_records(), r.record_index(),
        r.writer_options_string(),
    ],
    "read": lambda side: side.module.ArrayRecordReader("/missing/f").read(),
    "read nothing": lambda side: side.module.ArrayRecordReader("/missing/f").read([]),
    "read list": lambda side: side.module.ArrayRecordReader("/missing/f").read([0]),
    "read range": lambda side: side.module.ArrayRecordReader("/missing/f").read(0, 1),
    "read all": lambda side: side.module.ArrayRecordReader("/missing/f").read_all(),
    "seek": lambda side: side.module.ArrayRecordReader("/missing/f").seek(0),
    "close": lambda side: side.module.ArrayRecordReader("/missing/f").close(),
    "no name": lambda side: side.module.ArrayRecordReader("").read(),
    "glob": lambda side: [side.write([b"1"]), side.module.ArrayRecordReader(str(side.folder / "*")).read()],
    "range in the name": lambda side: side.module.ArrayRecordReader(side.write([b"1"]) + "[0:1]").read(),
    "folder": lambda side: [side.write([b"1"]), side.module.ArrayRecordReader(str(side.folder)).read()],
    "bucket": lambda side: side.module.ArrayRecordWriter("gs://bucket/f").ok(),
}  # fmt: skip
DAMAGED = [
    "corrupt_trunc_300", "corrupt_trunc_data_only", "corrupt_trunc_no_postscript", "crafted_bad_magic",
    "crafted_version2",
]  # fmt: skip
ODD = ["crafted_no_writer_options", "crafted_file_metadata", "transpose_zstd", "pad_blocks"]


@pytest.mark.framework
@pytest.mark.parametrize("name", INDICES)
def test_lists_of_indices(tmp_path: Path, name: str) -> None:
    assert_same(lambda side: side.reader().read(INDICES[name]), tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize("arguments", RANGES, ids=str)
def test_ranges(tmp_path: Path, arguments: tuple[Any, ...]) -> None:
    assert_same(lambda side: side.reader().read(*arguments), tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize("position", POSITIONS, ids=repr)
def test_seek(tmp_path: Path, position: Any) -> None:
    assert_same(lambda side: [(r := side.reader()).read(), r.seek(position), r.record_index()], tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize("name", CASES)
def test_calls(tmp_path: Path, name: str) -> None:
    assert_same(CASES[name], tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize("name", MISSING)
def test_what_cannot_be_opened_raises_when_it_is_used(tmp_path: Path, name: str) -> None:
    assert_same(MISSING[name], tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_not_ok_and_raises_when_it_is_used(tmp_path: Path, golden: Path, name: str) -> None:
    path = str(golden / "array_record" / f"{name}.array_record")

    def state(side: Any) -> list[Any]:
        reader = side.module.ArrayRecordReader(path)
        return [reader.ok(), reader.is_open(), reader.num_records(), reader.writer_options_string()]

    assert_same(state, tmp_path)
    assert_same(lambda side: side.module.ArrayRecordReader(path).read(), tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize("name", ODD)
def test_files_of_other_writers_read_the_same(tmp_path: Path, golden: Path, name: str) -> None:
    path = str(golden / "array_record" / f"{name}.array_record")
    assert_same(lambda side: side.module.ArrayRecordReader(path).read_all(), tmp_path)
    assert_same(lambda side: side.module.ArrayRecordReader(path).writer_options_string(), tmp_path)


def test_the_error_of_a_missing_file_names_it(tmp_path: Path) -> None:
    reader = ours(tmp_path).module.ArrayRecordReader("/missing/f")
    for call in (reader.read, reader.read_all, reader.close, reader.close, lambda: reader.read(0, 1)):
        with pytest.raises(RuntimeError) as caught:
            call()
        assert "/missing/f" in str(caught.value)
    assert not reader.is_open()


def test_out_of_bounds_is_an_error_in_an_empty_file_too(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as caught:
        ours(tmp_path).reader([]).read([5, 7])
    assert isinstance(caught.value, IndexError)
    assert str(caught.value) == "index 5 out of bound 0"


def test_reading_in_sequence_from_two_threads_gives_each_record_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    reader = ours(tmp_path).reader(numbers(2000))
    with ThreadPoolExecutor(2) as pool:
        found = [future.result() for future in [pool.submit(reader.read) for _ in range(2000)]]
    assert sorted(found) == sorted(numbers(2000))
    assert reader.record_index() == 2000


def test_the_table_of_an_offloaded_index_gives_the_same_records(tmp_path: Path) -> None:
    reader = ours(tmp_path).reader(numbers(300), "index_storage_option:offloaded")
    assert reader.read([299, 0]) == [b"record 299", b"record 0"]
    assert reader.read_all() == numbers(300)


def test_a_range_may_have_more_than_31_bits(tmp_path: Path) -> None:
    with pytest.raises(IndexError) as caught:
        ours(tmp_path).reader().read(0, 2**40)
    assert str(caught.value) == "[0, 1099511627776) is out of range of [0, 10)"
