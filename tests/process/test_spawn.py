"""Records sent to other processes: a pickle holds paths and options, and the files are opened where they are read."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path

import anyrecord
import pytest
from anyrecord import ChecksumError, FormatError, Limits, Records
from children import LIMIT_SECONDS, forked

from process.record_files import expected, write

RECORDS = 100


def read_all(records: Records) -> list[bytes]:
    return list(records)


def read_again(records: Records) -> bytes:
    """Comes home pickled from a process that itself got it pickled."""
    return pickle.dumps(records[::-1])


def fails(records: Records) -> None:
    records[0]


@pytest.fixture
def path(tmp_path: Path, suffix: str) -> Path:
    return write(tmp_path / f"data{suffix}", range(RECORDS))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_every_kind_read_right(path: Path, method: str) -> None:
    records = anyrecord.open(path)
    with multiprocessing.get_context(method).Pool(2) as pool:
        whole = pool.apply_async(read_all, (records,))
        part = pool.apply_async(read_all, (records[90:10:-7],))
        single = pool.map_async(records.__getitem__, [5, -1, 0])
        mapped = pool.apply_async(len, (records.map(len),))
        again = pool.apply_async(read_again, (records[:50],))
        assert whole.get(LIMIT_SECONDS) == [expected(index) for index in range(RECORDS)]
        assert part.get(LIMIT_SECONDS) == [expected(index) for index in range(90, 10, -7)]
        assert single.get(LIMIT_SECONDS) == [expected(5), expected(99), expected(0)]
        assert mapped.get(LIMIT_SECONDS) == RECORDS
        assert list(pickle.loads(again.get(LIMIT_SECONDS))) == [expected(index) for index in reversed(range(50))]


def test_an_error_in_a_spawned_worker_comes_home_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "data.ffr", range(RECORDS))
    records = anyrecord.open(path)
    data = bytearray(path.read_bytes())
    data[12 + 12 * RECORDS] ^= 1
    path.write_bytes(data)
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(ChecksumError) as caught:
        pool.apply_async(fails, (records,)).get(LIMIT_SECONDS)
    error = caught.value
    assert (error.path, error.offset, error.record) == (str(path), 12 + 12 * RECORDS, 0)
    assert error.expected is not None
    assert error.found is not None


def test_a_pickle_is_small_and_opens_nothing(path: Path) -> None:
    pickled = pickle.dumps(anyrecord.open([path] * 10)[3:])
    assert len(pickled) < 4000
    path.unlink()
    records = pickle.loads(pickled)
    assert len(records) == 10 * RECORDS - 3
    with pytest.raises(FileNotFoundError):
        records[0]


def test_a_pickle_keeps_the_options_and_the_order(path: Path) -> None:
    records = anyrecord.open(path, checksums=False, limits=Limits(open_files=3), cache_bytes=17)
    picked = records[10:20][::-2] + records[:2]
    restored = pickle.loads(pickle.dumps(picked))
    assert restored._source.options == records._source.options
    assert list(restored) == list(picked) == [expected(index) for index in (19, 17, 15, 13, 11, 0, 1)]
    assert repr(restored) == repr(picked)


def test_a_relative_path_is_found_from_another_folder(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pickled = pickle.dumps(anyrecord.open(path.name))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(pickled)[3] == expected(3)


@pytest.mark.parametrize("read", [lambda r: r[0], lambda r: r[[0, 1]], list, lambda r: r.sizes()])
def test_a_file_that_has_fewer_records_than_when_it_was_pickled_is_an_error(
    path: Path, read: Callable[[Records], object]
) -> None:
    pickled = pickle.dumps(anyrecord.open(path))
    write(path, range(RECORDS - 1))
    with pytest.raises(FormatError, match="fewer records") as caught:
        read(pickle.loads(pickled))
    assert caught.value.path == str(path)
    assert caught.value.found == str(RECORDS - 1)


def test_restored_records_read_first_in_a_forked_child_are_right(path: Path) -> None:
    restored = pickle.loads(pickle.dumps(anyrecord.open(path)))
    assert forked(lambda: list(restored)) == list(restored) == [expected(index) for index in range(RECORDS)]


def test_records_of_anything_but_paths_refuse_to_be_pickled(path: Path) -> None:
    with path.open("rb") as file:
        for records in (anyrecord.open(file), anyrecord.open(path.read_bytes())):
            with pytest.raises(TypeError, match="cannot be pickled; to pickle records, open them from a path"):
                pickle.dumps(records)
