"""Descriptors and memory: bounded while records are open, given back when they are not."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import Limits, Records
from children import LIMIT_SECONDS, python

from process.record_files import expected, open_descriptors, write

FILES = 400
OPEN_FILES = 8
TIMES = 2000


@pytest.fixture(autouse=True)
def nothing_left_over() -> None:
    """What earlier tests left to the collector would be counted, and vanish in between."""
    gc.collect()


@pytest.fixture
def many(tmp_path: Path, suffix: str) -> list[Path]:
    return [write(tmp_path / f"{number:03}{suffix}", [number, number + FILES]) for number in range(FILES)]


def read_all_over(records: Records, seed: int, times: int) -> int:
    """Reads records at random; returns the most descriptors that were open in between."""
    source, most = random.Random(seed), 0
    for _ in range(times):
        index = source.randrange(2 * FILES)
        assert records[index] == expected(index // 2 + index % 2 * FILES)
        most = max(most, open_descriptors())
    return most


def test_reads_all_over_many_files_keep_within_the_bound(many: list[Path]) -> None:
    before = open_descriptors()
    records = anyrecord.open(many, limits=Limits(open_files=OPEN_FILES))
    assert open_descriptors() <= before + OPEN_FILES
    # All of what is allowed is also used: else every read would open its file.
    assert read_all_over(records, 8, 1500) == before + OPEN_FILES
    batch = random.Random(9).choices(range(2 * FILES), k=500)
    assert records[batch] == [expected(index // 2 + index % 2 * FILES) for index in batch]
    assert open_descriptors() <= before + OPEN_FILES
    assert sum(1 for _ in records) == 2 * FILES
    assert open_descriptors() <= before + OPEN_FILES
    del records
    assert open_descriptors() == before


def test_threads_add_no_more_than_one_descriptor_each(many: list[Path]) -> None:
    threads, before = 6, open_descriptors()
    records = anyrecord.open(many, limits=Limits(open_files=OPEN_FILES))
    with ThreadPoolExecutor(threads) as pool:
        counts = pool.map(read_all_over, [records] * threads, range(threads), [300] * threads, timeout=LIMIT_SECONDS)
        # Each thread that counts has the folder of descriptors open too.
        assert max(counts) <= before + OPEN_FILES + 2 * threads
    assert open_descriptors() <= before + OPEN_FILES
    del records
    assert open_descriptors() == before


def test_more_files_than_a_process_may_open_are_read_with_the_usual_limits(many: list[Path], tmp_path: Path) -> None:
    script = """if True:
        import resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
        import anyrecord
        records = anyrecord.open(sys.argv[1])
        print(len(records), sum(1 for _ in records))
    """
    assert python(script, str(tmp_path)).split() == [str(2 * FILES)] * 2


def test_records_that_are_dropped_give_their_descriptors_back(many: list[Path]) -> None:
    before = open_descriptors()
    records = anyrecord.open(many[:50])
    part = records[10:20]
    assert open_descriptors() == before + 50
    del records
    assert part[0] == expected(5)
    del part
    assert open_descriptors() == before


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def assert_nothing_leaks(acts: Sequence[Callable[[], object]]) -> None:
    """Neither descriptors nor memory, in 2,000 calls. One leaked table in a hundred calls would be seen."""
    for number in range(TIMES // 10):
        acts[number % len(acts)]()
    gc.collect()
    descriptors, resident = open_descriptors(), resident_bytes()
    for number in range(TIMES):
        acts[number % len(acts)]()
    gc.collect()
    assert open_descriptors() == descriptors
    assert resident_bytes() - resident < 2 << 20


@pytest.fixture
def with_a_large_table(tmp_path: Path, suffix: str) -> Path:
    path = tmp_path / f"large{suffix}"
    with anyrecord.create(path, durable=False) as out:
        out.write_many(b"" for _ in range(9_999))
        out.write(b"the last one")
    return path


def test_two_thousand_opens_leak_nothing(with_a_large_table: Path) -> None:
    path, data = with_a_large_table, with_a_large_table.read_bytes()

    def closed() -> None:
        with anyrecord.open(path) as records:
            assert records[-1] == b"the last one"

    def dropped() -> None:
        assert anyrecord.open(path)[-1] == b"the last one"

    def in_memory() -> None:
        assert anyrecord.open(data)[[0, -1]] == [b"", b"the last one"]

    def of_a_file_object() -> None:
        with path.open("rb") as file:
            assert anyrecord.open(file)[-1] == b"the last one"

    def iterated() -> None:
        assert next(iter(anyrecord.open(path)[::-1])) == b"the last one"

    assert_nothing_leaks([closed, dropped, in_memory, of_a_file_object, iterated])


def test_two_thousand_failed_opens_leak_nothing(with_a_large_table: Path, tmp_path: Path, suffix: str) -> None:
    path, data = with_a_large_table, with_a_large_table.read_bytes()
    cut, garbage = tmp_path / f"cut{suffix}", tmp_path / f"garbage{suffix}"
    cut.write_bytes(data[: len(data) // 2 + 1])
    garbage.write_bytes(b"!" * len(data))
    failing: list[tuple[str, type[Exception], dict[str, Any]]] = [
        (str(tmp_path / "missing"), FileNotFoundError, {}),
        (str(cut), anyrecord.FormatError, {}),
        (str(garbage), anyrecord.FormatError, {}),
        (str(path), anyrecord.FormatError, {"expected_records": 7}),
        (f"{path}[5:10001]", ValueError, {}),
        (str(path), ValueError, {"format": "parquet"}),
    ]

    def fail(source: str, raised: type[Exception], keywords: dict[str, Any]) -> None:
        with pytest.raises(raised):
            anyrecord.open(source, **keywords)

    assert_nothing_leaks([partial(fail, *way) for way in failing])
