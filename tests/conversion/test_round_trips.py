"""Any records through any formats come out as they went in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from conformance.formats import CASES, FIRST_CASES, Case
from conformance.storages import RECORDS, write
from hypothesis import given, settings
from hypothesis import strategies as st

record_lists = st.lists(st.binary(max_size=60), max_size=30) | st.builds(
    lambda record, n: [record] * n, st.binary(max_size=3), st.integers(0, 500)
)
cases = st.sampled_from(CASES)


@contextmanager
def folder() -> Iterator[Path]:
    """Examples of one property share no files."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@given(
    records=record_lists, chain=st.lists(cases, min_size=2, max_size=6), threads=st.integers(0, 3), check=st.booleans()
)
@settings(max_examples=150, deadline=None)
def test_a_chain_of_formats_gives_back_the_records(
    records: list[bytes], chain: list[Case], threads: int, check: bool
) -> None:
    with folder() as here:
        paths = [here / f"{number}{case.suffix}" for number, case in enumerate(chain)]
        write(paths[0], records, chain[0])
        for source, target, case in zip(paths, paths[1:], chain[1:], strict=False):
            done = anyrecord.convert(source, target, threads=threads, verify=check, durable=False, **case.options)
            assert (done.records, done.format) == (len(records), case.format.name)
            assert list(anyrecord.open(target)) == records
            assert anyrecord.verify(target).ok


@given(
    parts=st.lists(st.tuples(cases, record_lists), min_size=1, max_size=5),
    target=cases,
    dealt=st.sampled_from(["shards", "shard_records", "shard_bytes"]),
    number=st.integers(1, 7),
)
@settings(max_examples=100, deadline=None)
def test_many_files_of_many_formats_become_shards_in_the_same_order(
    parts: list[tuple[Case, list[bytes]]], target: Case, dealt: str, number: int
) -> None:
    expected = [record for _, records in parts for record in records]
    with folder() as here:
        paths = [here / f"{place}{case.suffix}" for place, (case, _) in enumerate(parts)]
        for path, (case, records) in zip(paths, parts, strict=True):
            write(path, records, case)
        keywords: dict[str, Any] = {dealt: number, **target.options}
        done = anyrecord.convert(paths, here / f"all{target.suffix}", durable=False, **keywords)
        shards = [list(anyrecord.open(path)) for path in done.paths]
        assert [record for shard in shards for record in shard] == expected
        assert list(anyrecord.open(f"{here}/all{target.suffix}@{len(shards)}")) == expected
        sizes = [len(shard) for shard in shards]
        if dealt == "shards":
            assert len(shards) == number
            assert sizes == sorted(sizes, reverse=True)
            assert max(sizes) - min(sizes) <= 1
        elif dealt == "shard_records":
            assert set(sizes[:-1]) <= {number}
        else:
            assert all(sum(map(len, shard)) <= number or len(shard) == 1 for shard in shards)


@given(
    records=st.lists(st.binary(max_size=20), min_size=1, max_size=60),
    source=cases,
    target=cases,
    cut=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
@settings(max_examples=100, deadline=None)
def test_a_range_of_a_file_becomes_a_file(
    records: list[bytes], source: Case, target: Case, cut: tuple[int, int]
) -> None:
    start, stop = sorted(min(number, len(records)) for number in cut)
    with folder() as here:
        write(here / f"a{source.suffix}", records, source)
        name = f"{here}/a{source.suffix}[{start}:{stop}]"
        anyrecord.convert(name, here / f"b{target.suffix}", durable=False, **target.options)
        assert list(anyrecord.open(here / f"b{target.suffix}")) == records[start:stop]


@pytest.mark.parametrize("target", CASES, ids=str)
@pytest.mark.parametrize("source", FIRST_CASES, ids=str)
def test_records_of_every_size_go_from_each_format_to_each(source: Case, target: Case, tmp_path: Path) -> None:
    records = [*RECORDS, bytes(5_000_000), b"behind the large one"]
    write(tmp_path / f"a{source.suffix}", records, source)
    anyrecord.convert(tmp_path / f"a{source.suffix}", tmp_path / f"b{target.suffix}", durable=False, **target.options)
    assert list(anyrecord.open(tmp_path / f"b{target.suffix}")) == records


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bytes_are_those_of_a_plain_writer_for_any_number_of_threads(case: Case, tmp_path: Path) -> None:
    source = tmp_path / "source.tfrecord"
    write(source, RECORDS, FIRST_CASES[-1])
    write(tmp_path / f"plain{case.suffix}", RECORDS, case)
    for threads in (None, 0, 1, 2, 5):
        target = tmp_path / f"{threads}{case.suffix}"
        anyrecord.convert(source, target, threads=threads, durable=False, **case.options)
        assert target.read_bytes() == (tmp_path / f"plain{case.suffix}").read_bytes()
