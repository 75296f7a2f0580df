"""`create`: what a writer takes, what it refuses, and when a file appears."""

from __future__ import annotations

import array
import gc
import os
from pathlib import Path
from typing import Any

import anyrecord
import numpy as np
import pytest
from anyrecord import ClosedError
from turns import turn

from conformance.formats import Case
from conformance.storages import RECORDS, write, write_and_fail


def read(path: str | Path) -> list[bytes]:
    with anyrecord.open(path) as records:
        return list(records)


def names() -> list[str]:
    """Everything in the folder, hidden files too."""
    return sorted(os.listdir())


# What a record is

GRID = np.arange(12, dtype=np.int32).reshape(3, 4)

BUFFERS: dict[str, tuple[Any, bytes]] = {
    "bytes": (b"abc", b"abc"),
    "bytearray": (bytearray(b"abc"), b"abc"),
    "memoryview": (memoryview(b"abcdef")[2:4], b"cd"),
    "numpy": (np.frombuffer(b"abc", np.uint8), b"abc"),
    "numpy of two dimensions": (GRID, GRID.tobytes()),
    "rows of it": (GRID[1:], GRID[1:].tobytes()),
    "numpy of no dimension": (np.array(7, np.uint16), np.array(7, np.uint16).tobytes()),
    "empty numpy": (np.zeros((0, 5)), b""),
    "array": (array.array("H", [1, 2, 3]), array.array("H", [1, 2, 3]).tobytes()),
    "large bytearray": (bytearray(b"x" * 100_000), b"x" * 100_000),
}


def test_any_contiguous_buffer_is_a_record_stored_whole(case: Case) -> None:
    for number, (name, (record, stored)) in enumerate(BUFFERS.items()):
        with turn(name):
            path = f"{number}{case.suffix}"
            with anyrecord.create(path, durable=False, **case.options) as out:
                out.write(record)
                out.write_many([record, b"between", record])
            assert read(path) == [stored, stored, b"between", stored]
            assert out.num_bytes == 3 * len(stored) + len(b"between")


def test_a_buffer_can_be_reused_as_soon_as_it_is_written(case: Case) -> None:
    buffer = bytearray(4)
    with anyrecord.create(f"a{case.suffix}", durable=False, **case.options) as out:
        for number in range(300):
            buffer[:] = number.to_bytes(4, "little")
            out.write(buffer)
    buffer.clear()  # a buffer that is still lent out cannot be resized
    assert read(f"a{case.suffix}") == [number.to_bytes(4, "little") for number in range(300)]


REFUSED: dict[str, Any] = {
    "str": "text",
    "None": None,
    "int": 3,
    "list": [1, 2],
    "every other": np.arange(10)[::2],
    "Fortran order": np.asfortranarray(GRID),
    "a column": GRID[:, 0],
    "backwards": memoryview(b"abc")[::-1],
}


def test_anything_else_is_a_type_error_and_the_writer_goes_on(case: Case) -> None:
    for number, (name, record) in enumerate(REFUSED.items()):
        with turn(name):
            path = f"{number}{case.suffix}"
            with anyrecord.create(path, durable=False, **case.options) as out:
                out.write(b"before")
                with pytest.raises(TypeError, match=type(record).__name__):
                    out.write(record)
                with pytest.raises(TypeError):
                    out.write_many([b"first", record, b"never"])
                assert out.num_records == 2
                out.write(b"after")
            assert read(path) == [b"before", b"first", b"after"]


def test_write_many_takes_any_iterable_and_hands_its_error_on(case: Case) -> None:
    def failing() -> Any:
        yield b"made"
        raise KeyError("mine")

    path = f"a{case.suffix}"
    with anyrecord.create(path, durable=False, **case.options) as out:
        out.write_many(iter([b"1", b"2"]))
        out.write_many(())
        with pytest.raises(KeyError, match="mine"):
            out.write_many(failing())
        with pytest.raises(TypeError):
            out.write_many(5)  # type: ignore[arg-type]
    assert read(path) == [b"1", b"2", b"made"]


def test_records_can_be_copied_from_file_to_file(case: Case) -> None:
    write(f"a{case.suffix}", RECORDS, case)
    with anyrecord.open(f"a{case.suffix}") as records:
        write(f"b{case.suffix}", records, case)
    assert Path(f"a{case.suffix}").read_bytes() == Path(f"b{case.suffix}").read_bytes()


# When it appears


def test_nothing_is_under_the_name_before_close(case: Case) -> None:
    path = Path(f"a{case.suffix}")
    out = anyrecord.create(path, **case.options)
    out.write_many(RECORDS)
    assert not path.exists()
    assert not out.closed
    out.close()
    assert out.closed
    assert names() == [path.name]
    assert read(path) == list(RECORDS)
    assert (out.num_records, out.format) == (len(RECORDS), case.format.name)


def test_a_closed_writer_takes_nothing_more_and_closes_once(case: Case) -> None:
    path = Path(f"a{case.suffix}")
    with anyrecord.create(path, durable=False, **case.options) as out:
        out.write(b"only")
    out.close()
    before = path.read_bytes()
    with pytest.raises(ClosedError):
        out.write(b"more")
    with pytest.raises(ClosedError):
        out.write_many([b"more"])
    with pytest.raises(ValueError, match="published"):
        out.discard()
    assert path.read_bytes() == before


def test_a_writer_closed_inside_its_block_is_fine(case: Case) -> None:
    with anyrecord.create(f"a{case.suffix}", durable=False, **case.options) as out:
        out.write(b"1")
        out.close()
    assert read(f"a{case.suffix}") == [b"1"]


def test_an_exception_in_the_block_publishes_nothing_and_leaves_nothing_behind(case: Case) -> None:
    out = write_and_fail(f"a{case.suffix}", RECORDS, case)
    assert names() == []
    with pytest.raises(ClosedError):
        out.write(b"more")


def test_an_exception_in_the_block_leaves_an_old_file_as_it_was(case: Case) -> None:
    path = Path(f"a{case.suffix}")
    path.write_bytes(b"old")
    write_and_fail(path, RECORDS, case, overwrite=True)
    assert names() == [path.name]
    assert path.read_bytes() == b"old"


def test_discard_throws_everything_away(case: Case) -> None:
    with anyrecord.create(f"a{case.suffix}", **case.options) as out:
        out.write_many(RECORDS)
        out.discard()
        assert out.closed
        with pytest.raises(ClosedError):
            out.write(b"more")
    assert names() == []
    out.discard()
    with pytest.raises(ClosedError, match="discarded"):
        out.close()
    assert names() == []


def test_a_dropped_writer_warns_and_leaves_nothing_behind(case: Case) -> None:
    def write_and_drop() -> None:
        anyrecord.create(f"a{case.suffix}", **case.options).write(b"1")
        gc.collect()

    with pytest.warns(RuntimeWarning, match=f"a{case.suffix}"):
        write_and_drop()
    assert names() == []


def test_an_existing_file_is_kept_and_the_way_to_replace_it_named(case: Case) -> None:
    path = Path(f"a{case.suffix}")
    path.write_bytes(b"old")
    with pytest.raises(FileExistsError, match="overwrite=True") as caught:
        anyrecord.create(path, **case.options)
    assert caught.value.filename == str(path.absolute())
    assert path.read_bytes() == b"old"
    assert names() == [path.name]


def test_a_file_that_appears_meanwhile_is_kept_too(case: Case) -> None:
    path = Path(f"a{case.suffix}")
    out = anyrecord.create(path, **case.options)
    out.write(b"1")
    path.write_bytes(b"somebody else's")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        out.close()
    assert path.read_bytes() == b"somebody else's"
    assert names() == [path.name]


def test_overwrite_replaces_the_file_when_the_new_one_is_whole(case: Case) -> None:
    path = Path(f"a{case.suffix}")
    write(path, RECORDS, case)
    with anyrecord.open(path) as old, anyrecord.create(path, overwrite=True, **case.options) as out:
        out.write(b"new")
        assert read(path) == list(RECORDS)
        out.close()
        assert read(path) == [b"new"]
        assert list(old) == list(RECORDS), "a reader keeps the file that it opened"
    assert names() == [path.name]


@pytest.mark.parametrize("announced", [0, 1, 2, 4, 100])
def test_another_number_of_records_than_announced_is_an_error(case: Case, announced: int) -> None:
    with (
        pytest.raises(ValueError, match=f"num_records|{announced}"),
        anyrecord.create(f"a{case.suffix}", num_records=announced, **case.options) as out,
    ):
        out.write_many([b"1", b"2", b"3"])
    assert names() == []


def test_the_announced_number_changes_no_byte(case: Case) -> None:
    write(f"a{case.suffix}", RECORDS, case)
    write(f"b{case.suffix}", RECORDS, case, num_records=len(RECORDS))
    assert Path(f"a{case.suffix}").read_bytes() == Path(f"b{case.suffix}").read_bytes()


@pytest.mark.parametrize("keywords", [{"threads": 1}, {"threads": 2}, {"threads": 4}, {"durable": True}], ids=str)
def test_threads_and_durability_change_no_byte(case: Case, keywords: dict[str, Any]) -> None:
    records = [bytes([i % 251]) * (i * 37 % 5000) for i in range(2000)]  # several groups for each thread
    with anyrecord.create(f"a{case.suffix}", durable=False, **case.options) as out:
        out.write_many(records)
    with anyrecord.create(f"b{case.suffix}", **{"durable": False, **keywords}, **case.options) as out:
        out.write_many(records)
    assert Path(f"a{case.suffix}").read_bytes() == Path(f"b{case.suffix}").read_bytes()
    assert read(f"b{case.suffix}") == records


# Wrong arguments


@pytest.mark.parametrize(
    "keywords",
    [
        {"threads": -1},
        {"num_records": -1},
        {"num_records": 1.5},
        {"shards": 0},
        {"shard_bytes": 0},
        {"shard_records": -3},
        {"shards": True},
        {"shards": 2, "shard_bytes": 10},
        {"format": "no such format"},
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_refused_before_anything_is_made(case: Case, keywords: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        anyrecord.create(f"a{case.suffix}", **keywords, **case.options)
    assert any(str(word) in str(caught.value) for both in keywords.items() for word in both)
    assert names() == []


def test_a_name_without_a_known_suffix_needs_a_format(case: Case) -> None:
    with pytest.raises(ValueError, match=case.format.name):
        anyrecord.create("data.bin", **case.options)
    write("data.bin", RECORDS, case, format=case.format.name)
    assert read("data.bin") == list(RECORDS)


def test_where_no_file_can_be_the_system_says_so(case: Case) -> None:
    os.mkdir(f"folder{case.suffix}")
    with pytest.raises(IsADirectoryError):
        anyrecord.create(f"folder{case.suffix}", **case.options)
    with pytest.raises(FileNotFoundError) as caught:
        anyrecord.create(f"missing/a{case.suffix}", **case.options)
    assert caught.value.filename == os.path.abspath(f"missing/a{case.suffix}")
    with pytest.raises(TypeError):
        anyrecord.create(f"a{case.suffix}".encode(), **case.options)  # type: ignore[arg-type]
    assert names() == [f"folder{case.suffix}"]
