"""Files that change under an open reader: the old bytes or an error, never a mixture and never a crash."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyrecord
import pytest
from anyrecord import FormatError, Limits, Records, TruncatedError
from children import LIMIT_SECONDS, forked

from process.record_files import expected, write

RECORDS = 100
READS: dict[str, Callable[[Records], object]] = {
    "one": lambda records: records[50],
    "batch": lambda records: records[[50]],
    "slice": lambda records: list(records[50:51]),
    "mapped": lambda records: records.map(len)[50],
    "packed": lambda records: records.read_packed([50]),
    "into a buffer": lambda records: records.read_into(bytearray(10_000), [50]),
}
reading_in_each_way = pytest.mark.parametrize("read", READS.values(), ids=READS.keys())


@pytest.fixture
def path(tmp_path: Path, suffix: str) -> Path:
    return write(tmp_path / f"data{suffix}", range(RECORDS))


def test_a_replaced_file_keeps_giving_the_old_bytes(path: Path) -> None:
    records = anyrecord.open(path)
    write(path, range(1000, 1010))
    assert list(records) == [expected(index) for index in range(RECORDS)]
    assert forked(lambda: records[99]) == expected(99)
    assert list(anyrecord.open(path)) == [expected(index) for index in range(1000, 1010)]


def test_a_deleted_file_keeps_giving_its_bytes(path: Path) -> None:
    records = anyrecord.open(path)
    path.unlink()
    assert records[[99, 0]] == [expected(99), expected(0)]


@reading_in_each_way
@pytest.mark.parametrize("size", [0, 100, 10_000])
def test_a_file_cut_under_the_reader_is_a_truncation_error(
    path: Path, read: Callable[[Records], object], size: int
) -> None:
    records = anyrecord.open(path)
    os.truncate(path, size)
    with pytest.raises(TruncatedError) as caught:
        read(records)
    assert caught.value.path == str(path)
    assert caught.value.offset is not None
    assert caught.value.expected is not None


def test_a_file_cut_to_nothing_under_sixteen_threads_gives_right_records_or_truncation_errors(path: Path) -> None:
    # With a cache, readers could go on for ever with what they have.
    records, started = anyrecord.open(path, cache_bytes=0), threading.Barrier(17)

    def read(number: int) -> bool:
        started.wait(LIMIT_SECONDS)
        # Ends with the error that is waited for, or with an assertion.
        try:
            while True:
                for index in range(number, RECORDS, 3):
                    assert records[index] == expected(index)
        except TruncatedError:
            return True

    with ThreadPoolExecutor(16) as pool:
        readers = [pool.submit(read, number) for number in range(16)]
        started.wait(LIMIT_SECONDS)
        os.truncate(path, 0)
        assert all(reader.result(LIMIT_SECONDS) for reader in readers)


def test_an_iterator_hands_over_what_is_left_and_then_raises(path: Path) -> None:
    records = anyrecord.open(path)
    os.truncate(path, path.stat().st_size // 2)
    got: list[bytes] = []
    with pytest.raises(TruncatedError) as caught:
        got.extend(iter(records))
    assert caught.value.record == len(got)
    assert len(got) < RECORDS
    assert got or path.suffix == ".recordio", "only there all records share one chunk"
    assert got == [expected(index) for index in range(len(got))]


def test_a_file_overwritten_in_place_under_the_reader_is_an_error(path: Path) -> None:
    records = anyrecord.open(path)
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(FormatError) as caught:
        records[50]
    assert (caught.value.path, caught.value.record) == (str(path), 50)


def rewrite(path: Path) -> None:
    """The same bytes in another file."""
    data = path.read_bytes()
    path.rename(path.with_suffix(".old"))  # kept, so that the inode is not used again
    path.write_bytes(data)


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"!")


def touch(path: Path) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


@pytest.mark.parametrize("change", [rewrite, shorten, lengthen, touch])
@reading_in_each_way
def test_a_file_that_changed_while_its_descriptor_was_closed_is_refused(
    path: Path, tmp_path: Path, suffix: str, change: Callable[[Path], None], read: Callable[[Records], object]
) -> None:
    other = write(tmp_path / f"other{suffix}", range(RECORDS, RECORDS + 2))
    records = anyrecord.open([path, other], io="plain", limits=Limits(open_files=1))
    assert records[RECORDS] == expected(RECORDS)  # opens the other file, and closes the first one for it
    change(path)
    with pytest.raises(FormatError, match="changed since it was opened") as caught:
        read(records)
    assert caught.value.path == str(path)
    assert records[RECORDS + 1] == expected(RECORDS + 1), "the other file is as good as before"


def test_a_file_that_is_gone_while_its_descriptor_was_closed_is_not_found(
    path: Path, tmp_path: Path, suffix: str
) -> None:
    other = write(tmp_path / f"other{suffix}", range(2))
    records = anyrecord.open([path, other], io="plain", limits=Limits(open_files=1))
    assert records[RECORDS] == expected(0)
    path.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        records[0]
    assert caught.value.filename == str(path)


def test_a_mapped_file_needs_no_descriptor(path: Path, tmp_path: Path, suffix: str) -> None:
    other = write(tmp_path / f"other{suffix}", range(2))
    records = anyrecord.open([path, other], io="map", limits=Limits(open_files=1))
    assert records[RECORDS] == expected(0)
    path.unlink()
    assert records[50] == expected(50)


def test_a_file_that_comes_back_as_it_was_is_read_on(path: Path, tmp_path: Path, suffix: str) -> None:
    other = write(tmp_path / f"other{suffix}", range(2))
    records = anyrecord.open([path, other], io="plain", limits=Limits(open_files=1))
    assert records[RECORDS] == expected(0)
    away = path.rename(path.with_suffix(".away"))
    with pytest.raises(FileNotFoundError):
        records[0]
    away.rename(path)
    assert records[0] == expected(0)
