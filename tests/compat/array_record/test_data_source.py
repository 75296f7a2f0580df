"""`ArrayRecordDataSource`, call by call, beside the original."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyrecord
import numpy as np
import pytest

from .sides import Case, Side, assert_same, numbers, ours


@dataclass
class Instruction:
    """What TFDS passes."""

    filename: str
    skip: int
    take: int
    examples_in_shard: int = 100


def source(side: Side, paths: Any, *arguments: Any, **keywords: Any) -> Any:
    return side.sources.ArrayRecordDataSource(paths, *arguments, **keywords)


def told(ds: Any) -> list[Any]:
    return [len(ds), [ds[i] for i in range(len(ds))], list(ds), ds.__getitems__(range(len(ds)))]


def instruction(side: Side, skip: int, take: int) -> Instruction:
    return Instruction(side.files(5)[0], skip, take)


def _key_itself(_self: Any, key: int) -> int:
    return key


PATHS: dict[str, Case] = {
    "one": lambda side: told(source(side, side.files(5)[0])),
    "Path": lambda side: told(source(side, Path(side.files(5)[0]))),
    "list": lambda side: told(side.source(5, 3, 4)),
    "tuple": lambda side: told(source(side, tuple(side.files(5, 3)))),
    "Paths": lambda side: told(source(side, [Path(file) for file in side.files(5, 3)])),
    "twice the same": lambda side: told(source(side, side.files(3) * 2)),
    "with empty files": lambda side: told(side.source(0, 3, 0, 2, 0)),
    "range": lambda side: told(source(side, side.files(5)[0] + "[1:4]")),
    "range on a Path": lambda side: told(source(side, Path(side.files(5)[0] + "[1:4]"))),
    "ranges": lambda side: told(source(side, [file + "[1:3]" for file in side.files(5, 3)])),
    "range and whole": lambda side: told(source(side, [(files := side.files(5, 3))[0] + "[2:4]", files[1]])),
    "empty ranges": lambda side: told(source(side, [(file := side.files(5)[0]) + "[3:3]", file + "[1:2]"])),
    "instruction": lambda side: told(source(side, instruction(side, 1, 3))),
    "instructions": lambda side: told(source(side, [instruction(side, 0, 2), instruction(side, 4, 1)])),
    "nothing": lambda side: source(side, []),
    "bytes": lambda side: source(side, b"f"),
    "list of bytes": lambda side: source(side, [b"f"]),
    "None": lambda side: source(side, None),
    "int": lambda side: source(side, 3),
    "set": lambda side: source(side, {"f"}),
    "generator": lambda side: source(side, (name for name in ["f"])),
    "missing": lambda side: source(side, "/missing/f"),
    "one missing": lambda side: source(side, [side.files(3)[0], "/missing/f"]),
    "glob": lambda side: [side.files(3), source(side, str(side.folder / "f*"))],
    "shards": lambda side: [side.files(3), source(side, str(side.folder / "f@1"))],
    "folder": lambda side: [side.files(3), source(side, str(side.folder))],
    "half a range": lambda side: source(side, side.files(3)[0] + "[:2]"),
    "negative range": lambda side: source(side, side.files(3)[0] + "[-1:2]"),
}
LAZY: dict[str, Case] = {
    "length of a missing file": lambda side: len(source(side, "/missing/f[0:7]")),
    "read of a missing file": lambda side: source(side, "/missing/f[0:7]")[0],
    "batch of a missing file": lambda side: source(side, "/missing/f[0:7]").__getitems__([0]),
    "length of too long a range": lambda side: len(source(side, side.files(5)[0] + "[0:100]")),
    "inside of too long a range": lambda side: source(side, side.files(5)[0] + "[0:100]")[4],
    "outside of too long a range": lambda side: source(side, side.files(5)[0] + "[0:100]")[50],
    "beside a missing file": lambda side: source(side, ["/missing/f[0:7]", side.files(5)[0] + "[1:3]"])[8],
    "batch beside a missing file": lambda side: source(side, ["/missing/f[0:7]", side.files(5)[0] + "[1:3]"])
    .__getitems__([8, 7, 8]),
    "of a range": lambda side: source(side, side.files(5)[0] + "[1:3]")[2],
    "empty range of a missing file": lambda side: told(source(side, ["/missing/f[2:2]", side.files(3)[0] + "[0:3]"])),
    "whole file missing beside a range": lambda side: source(side, ["/missing/f", "/missing/g[0:1]"]),
}  # fmt: skip
KEYS: dict[str, Any] = {
    "int": 4,
    "numpy": np.int64(7),
    "0-d": np.array(2),
    "bool": True,
    "negative": -1,
    "numpy negative": np.int64(-1),
    "length": 8,
    "huge": 2**70,
    "float": 1.0,
    "str": "1",
    "slice": slice(0, 2),
    "None": None,
}
BATCHES: dict[str, Any] = {
    "list": [7, 0, 4],
    "repeats": [3, 3],
    "tuple": (1, 6),
    "range": range(8),
    "numpy": np.array([5, 1]),
    "numpy scalars": [np.int64(5)],
    "set": {2},
    "negative": [0, -1],
    "numpy negative": np.array([0, -1]),
    "length": [0, 8],
    "numpy length": np.array([8]),
    "generator": (i for i in [1]),
    "float": [1.5],
    "int": 3,
}
CALLS: dict[str, Case] = {
    "iter": lambda side: list(side.source(3, 2)),
    "iterator": lambda side: next(iter(side.source(3, 2))),
    "reversed": lambda side: list(reversed(side.source(3, 2))),
    "in": lambda side: [b"1.1" in (ds := side.source(3, 2)), b"no" in ds],
    "with": lambda side: [(ds := side.source(3, 2)).__enter__() is ds, ds[1], ds.__exit__(None, None, None), told(ds)],
    "close": lambda side: side.source(3).close,
    "pickle": lambda side: told(pickle.loads(pickle.dumps(side.source(3, 2)))),
    "pickle after a read": lambda side: [(ds := side.source(3, 2))[1], told(pickle.loads(pickle.dumps(ds)))],
    "pickle of a range": lambda side: told(pickle.loads(pickle.dumps(source(side, side.files(5)[0] + "[1:4]")))),
    "pickle of a missing file": lambda side: len(pickle.loads(pickle.dumps(source(side, "/missing/f[0:4]")))),
    "pickle beside a missing file": lambda side: [
        (ds := source(side, ["/missing/f[0:4]", side.files(3)[0] + "[1:3]"]))[5],
        pickle.loads(pickle.dumps(ds)).__getitems__([4, 5]),
    ],
    "deepcopy": lambda side: told(copy.deepcopy(side.source(3, 2))),
    "equal": lambda side: [(ds := side.source(3)) == ds, ds == side.source(3), isinstance(hash(ds), int)],
    "paths": lambda side: [Path(path).name for path in side.source(3, 2)._paths],
    "repr": lambda side: repr(source(side, ["/a/f[0:3]", "/b/é[3:5]"])),
    "repr of an instruction": lambda side: repr(source(side, Instruction("/a/f", 1, 2))),
    "subclass": lambda side: list(
        type("S", (side.sources.ArrayRecordDataSource,), {"__getitem__": _key_itself})(side.files(3))
    ),
    "an instruction is one": lambda side: [
        isinstance(thing, side.sources.FileInstruction) for thing in (Instruction("f", 0, 1), "f", object())
    ],
    "reader options": lambda side: told(source(side, side.files(3), {"max_parallelism": 1})),
    "reader options by name": lambda side: told(
        source(side, side.files(3), reader_options={"max_parallelism": "auto"})
    ),
    "reader options of another kind": lambda side: source(side, side.files(3), 7),
    "offloaded": lambda side: told(
        source(side, side.files(3), {"index_storage_option": "offloaded", "footer_prefetch_bytes": "0"})
    ),
}


@pytest.mark.framework
@pytest.mark.parametrize("name", PATHS)
def test_paths(tmp_path: Path, name: str) -> None:
    assert_same(PATHS[name], tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize("name", LAZY)
def test_files_that_say_how_many_records_they_have_are_opened_late(tmp_path: Path, name: str) -> None:
    assert_same(LAZY[name], tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize("name", KEYS)
def test_keys(tmp_path: Path, name: str) -> None:
    assert_same(lambda side: side.source(5, 3)[KEYS[name]], tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize("name", BATCHES)
def test_batches(tmp_path: Path, name: str) -> None:
    assert_same(lambda side: side.source(5, 3).__getitems__(BATCHES[name]), tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize("name", CALLS)
def test_calls(tmp_path: Path, name: str) -> None:
    assert_same(CALLS[name], tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize(
    "paths", [[], None, [b"f"]], ids=["no paths", "None", "bytes"]
)  # what is worth telling in the original's words
def test_errors_of_the_paths_are_in_the_same_words(tmp_path: Path, paths: Any) -> None:
    assert_same(lambda side: source(side, paths), tmp_path, texts=True)


@pytest.mark.parametrize("key", [-1, 8, np.int64(8)], ids=repr)
def test_out_of_range_is_both_an_index_error_and_a_value_error(tmp_path: Path, key: Any) -> None:
    ds = ours(tmp_path).source(5, 3)
    calls: list[Callable[[], Any]] = [lambda: ds[key], lambda: ds.__getitems__([key]), lambda: ds[[0, key]]]
    for call in calls:
        with pytest.raises(ValueError) as caught:
            call()
        assert isinstance(caught.value, IndexError)
        assert str(caught.value) == f"Record key should be in [0, num_records): found {key}, num_records is 8"


@pytest.mark.parametrize("key", [[7, 0], (7, 0), np.array([7, 0]), range(7, -1, -7)], ids=repr)
def test_a_list_of_keys_gives_a_list_as_documented(tmp_path: Path, key: Any) -> None:
    assert ours(tmp_path).source(5, 3)[key] == [b"1.2", b"0.0"]


def test_no_keys_give_no_records(tmp_path: Path) -> None:
    ds = ours(tmp_path).source(5)
    assert ds.__getitems__([]) == ds[[]] == []


@pytest.mark.parametrize(
    "options",
    [
        {"readahead_buffer_size": "0", "max_parallelism": "0"},
        {"readahead_buffer_size": "64MB", "max_parallelism": "8"},
        {"readahead_buffer_size": "16MB"},
        {"readahead_buffer_size": "4MB"},
        {"readahead_buffer_size": "auto"},
        {"index_storage_option": "offloaded"},
        "readahead_buffer_size:16MB,max_parallelism:8",
        None,
    ],
)
def test_documented_reader_options_are_accepted(tmp_path: Path, options: Any) -> None:
    side = ours(tmp_path)
    assert source(side, side.files(3), reader_options=options)[2] == b"0.2"


def test_wrong_reader_options_are_told_at_once(tmp_path: Path) -> None:
    side = ours(tmp_path)
    with pytest.raises(ValueError) as caught:
        source(side, side.files(3), {"other": 1})
    assert "Unknown option other" in str(caught.value)


def test_the_pool_size_of_some_releases_is_accepted(tmp_path: Path) -> None:
    side = ours(tmp_path)
    assert len(source(side, side.files(3), reader_pool_size=4)) == 3


def test_any_kind_of_path_is_a_path_as_documented(tmp_path: Path) -> None:
    class Elsewhere:
        def __init__(self, path: str) -> None:
            self.path = path

        def __fspath__(self) -> str:
            return self.path

    side = ours(tmp_path)
    files = side.files(3, 2)
    assert list(source(side, [Elsewhere(files[0] + "[1:2]"), Elsewhere(files[1])])) == [b"0.1", b"1.0", b"1.1"]


def test_a_range_that_ends_before_it_starts_is_refused(tmp_path: Path) -> None:
    for paths in ("f[4:1]", Instruction("f", 3, -1), Instruction("f", -3, 4)):
        with pytest.raises(ValueError) as caught:
            source(ours(tmp_path), paths)
        assert "not a valid range" in str(caught.value)


def test_files_of_larger_groups_are_read_without_complaint(tmp_path: Path) -> None:
    side = ours(tmp_path)
    ds = source(side, side.write(numbers(100), "group_size:7"))
    assert [ds[i] for i in (99, 0, 50)] == [b"record 99", b"record 0", b"record 50"]


def test_a_damaged_record_raises_a_runtime_error_that_says_where(tmp_path: Path) -> None:
    side = ours(tmp_path)
    path = Path(side.write(numbers(10), "uncompressed"))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"record 3", b"record 5"))
    ds = source(side, str(path))
    assert ds[2] == b"record 2"
    for call in (lambda: ds[3], lambda: ds.__getitems__([3]), lambda: list(ds)):
        with pytest.raises(RuntimeError) as caught:
            call()
        assert path.name in str(caught.value)


def test_a_pickle_reads_without_counting_again(tmp_path: Path) -> None:
    side = ours(tmp_path)
    ds = side.source(3, 2)
    data = pickle.dumps(ds)
    (side.folder / "f0.array_record").unlink()
    again = pickle.loads(data)
    assert len(again) == 5
    assert again[4] == b"1.1"
    with pytest.raises(RuntimeError):
        again[0]


def test_files_that_changed_while_nobody_had_them_open_are_noticed(tmp_path: Path) -> None:
    side = ours(tmp_path)
    with side.source(3, 2) as ds:
        assert ds[0] == b"0.0"
    side.files(3, 9)
    with pytest.raises(RuntimeError) as caught:
        ds[0]
    assert "5 records when this source was created" in str(caught.value)


def test_an_empty_range_of_a_missing_file_does_not_keep_the_others_from_being_one_sequence(tmp_path: Path) -> None:
    side = ours(tmp_path)
    ds = source(side, ["/missing/f[2:2]", side.files(3)[0] + "[0:2]"])
    assert ds[1] == b"0.1"
    assert isinstance(ds._records, anyrecord.Records)


def test_many_threads_open_late_files_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    side = ours(tmp_path)
    ds = source(side, [f"{file}[0:20]" for file in side.files(*[20] * 8)])
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ds.__getitem__, list(range(160)) * 5))
    assert found == [b"%d.%d" % divmod(i, 20) for i in range(160)] * 5
