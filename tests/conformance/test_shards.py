"""Many files as one output: names, balance, and replacing one set by another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.formats import FIRST_CASES, Case
from conformance.storages import RECORDS, write, write_and_fail

N = len(RECORDS)


def shard_names(count: int, case: Case, stem: str = "train") -> list[str]:
    return [f"{stem}-{index:05}-of-{count:05}{case.suffix}" for index in range(count)]


def read_each(names: list[str]) -> list[list[bytes]]:
    contents = []
    for name in names:
        with anyrecord.open(name) as records:
            contents.append(list(records))
    return contents


def in_order(records: tuple[bytes, ...], most_bytes: int) -> list[list[bytes]]:
    """A new shard begins with the record that would make one larger than `most_bytes`."""
    shards: list[list[bytes]] = [[]]
    for record in records:
        if shards[-1] and sum(map(len, shards[-1])) + len(record) > most_bytes:
            shards.append([])
        shards[-1].append(record)
    return shards


@pytest.mark.parametrize("shards", [1, 2, 3, 7, N - 1, N, N + 2])
@pytest.mark.parametrize("announced", [None, N])
def test_shards_take_turns(case: Case, shards: int, announced: int | None) -> None:
    write(f"train{case.suffix}", RECORDS, case, shards=shards, num_records=announced)
    names = shard_names(shards, case)
    assert sorted(os.listdir()) == names
    contents = read_each(names)
    assert contents == [list(RECORDS[turn::shards]) for turn in range(shards)]
    counts = [len(content) for content in contents]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("most", [1, 2, 10, N - 1, N, N + 1])
def test_shards_of_so_many_records_are_filled_in_order(case: Case, most: int) -> None:
    write(f"train{case.suffix}", RECORDS, case, shard_records=most)
    expected = [list(RECORDS[at : at + most]) for at in range(0, N, most)]
    names = shard_names(len(expected), case)
    assert sorted(os.listdir()) == names
    assert read_each(names) == expected


@pytest.mark.parametrize("most", [1, 100, 1000, 70_000, 10**9])
def test_shards_of_so_many_bytes_are_filled_in_order(case: Case, most: int) -> None:
    write(f"train{case.suffix}", RECORDS, case, shard_bytes=most)
    expected = in_order(RECORDS, most)
    names = shard_names(len(expected), case)
    assert sorted(os.listdir()) == names
    assert read_each(names) == expected


@pytest.mark.parametrize("keywords", [{"shard_records": 7}, {"shard_bytes": 500}], ids=str)
def test_a_set_in_order_reads_back_as_it_was_written_by_every_name(case: Case, keywords: dict[str, int]) -> None:
    write(f"data{case.suffix}", RECORDS, case, **keywords)
    files = sorted(os.listdir())
    for source in (f"data{case.suffix}@{len(files)}", f"data@{len(files)}", f"data-*{case.suffix}", ".", files):
        with anyrecord.open(source) as records:
            assert list(records) == list(RECORDS)


def test_no_records_make_empty_shards(case: Case) -> None:
    write(f"turns{case.suffix}", [], case, shards=3)
    write(f"order{case.suffix}", [], case, shard_records=3)
    assert sorted(os.listdir()) == shard_names(1, case, "order") + shard_names(3, case, "turns")
    for source in (f"turns{case.suffix}@3", f"order{case.suffix}@1"):
        with anyrecord.open(source) as records:
            assert list(records) == []


def test_nothing_appears_before_close_and_nothing_after_an_exception(case: Case) -> None:
    sets: list[dict[str, Any]] = [{"shards": 3}, {"shard_records": 5}, {"shard_bytes": 50}]
    for keywords in sets:
        with anyrecord.create(f"train{case.suffix}", **keywords, **case.options) as out:
            out.write_many(RECORDS)
            assert [name for name in os.listdir() if not name.startswith(".")] == []
            out.discard()
        assert os.listdir() == []
        write_and_fail(f"train{case.suffix}", RECORDS, case, **keywords)
        assert os.listdir() == []


def test_a_discarded_set_leaves_nothing(case: Case) -> None:
    with anyrecord.create(f"train{case.suffix}", shard_records=2, **case.options) as out:
        out.write_many(RECORDS)
        out.discard()
    assert os.listdir() == []


def test_an_announced_number_holds_for_the_whole_set(case: Case) -> None:
    sets: list[dict[str, Any]] = [{"shards": 3}, {"shard_records": 5}]
    for keywords in sets:
        with (
            pytest.raises(ValueError, match=str(N + 1)),
            anyrecord.create(f"train{case.suffix}", num_records=N + 1, **keywords, **case.options) as out,
        ):
            out.write_many(RECORDS)
        assert os.listdir() == []


@pytest.mark.parametrize("count", [1, 3, 5])
def test_an_existing_set_of_any_size_is_kept_and_the_way_to_replace_it_named(case: Case, count: int) -> None:
    write(f"train{case.suffix}", RECORDS, case, shards=3)
    before = {name: Path(name).read_bytes() for name in os.listdir()}
    with pytest.raises(FileExistsError, match="overwrite=True") as caught:
        anyrecord.create(f"train{case.suffix}", shards=count, **case.options)
    assert caught.value.filename == os.path.abspath(shard_names(3, case)[0])
    assert {name: Path(name).read_bytes() for name in os.listdir()} == before


@pytest.mark.parametrize("keywords", [{"shards": 1}, {"shards": 3}, {"shards": 5}, {"shard_records": 20}], ids=str)
def test_overwriting_a_set_leaves_only_the_new_one(case: Case, keywords: dict[str, int]) -> None:
    write(f"train{case.suffix}", RECORDS, case, shards=3)
    write(f"other{case.suffix}", RECORDS, case, shards=2)
    write(f"train{case.suffix}", RECORDS[::-1], case, overwrite=True, **keywords)
    names = sorted(name for name in os.listdir() if not name.startswith("other"))
    assert names == shard_names(len(names), case)
    assert sorted(record for content in read_each(names) for record in content) == sorted(RECORDS)
    assert len(names) == keywords.get("shards", 2)
    assert sorted(set(os.listdir()) - set(names)) == shard_names(2, case, "other")


def test_an_exception_while_overwriting_leaves_the_old_set(case: Case) -> None:
    write(f"train{case.suffix}", RECORDS, case, shards=3)
    write_and_fail(f"train{case.suffix}", [b"new"], case, shards=2, overwrite=True)
    assert sorted(os.listdir()) == shard_names(3, case)
    with anyrecord.open(f"train{case.suffix}@3") as records:
        assert sorted(records) == sorted(RECORDS)


@pytest.mark.parametrize("keywords", [{"shards": 3}, {"shard_records": 7}], ids=str)
def test_threads_change_no_byte_of_any_shard(case: Case, keywords: dict[str, Any]) -> None:
    for threads in (1, 4):
        write(f"t{threads}{case.suffix}", RECORDS, case, threads=threads, **keywords)
    ones = sorted(name for name in os.listdir() if name.startswith("t1-"))
    assert ones
    for name in ones:
        assert Path(name).read_bytes() == Path(name.replace("t1-", "t4-")).read_bytes()


def test_a_missing_shard_is_noticed(case: Case) -> None:
    write(f"train{case.suffix}", RECORDS, case, shards=4)
    missing = shard_names(4, case)[2]
    os.remove(missing)
    for source in (f"train{case.suffix}@4", f"train-*{case.suffix}", "."):
        with pytest.raises(FileNotFoundError, match=missing):
            anyrecord.open(source)
    with anyrecord.open(sorted(os.listdir())) as records:
        assert len(records) == N - len(RECORDS[2::4])


def test_shards_need_a_path(case: Case) -> None:
    with open("file", "wb") as file, pytest.raises(ValueError, match="path"):
        anyrecord.create(file, format=case.format.name, shards=2, **case.options)


@given(sizes=st.lists(st.integers(0, 30), max_size=40), most=st.integers(1, 80))
@settings(max_examples=25, deadline=None)
def test_no_shard_holds_more_bytes_than_asked_for_unless_one_record_does(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], most: int
) -> None:
    records = tuple(bytes(size) for size in sizes)
    for case in FIRST_CASES:
        folder = tmp_path_factory.mktemp("set")
        write(folder / f"train{case.suffix}", records, case, shard_bytes=most)
        contents = read_each([str(folder / name) for name in sorted(os.listdir(folder))])
        assert contents == in_order(records, most)
