"""Files are divided by record numbers: nothing is lost, nothing comes twice, wherever and whenever they are divided."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord._paths import FileRange
from anyrecord.beam._ranges import RangeTracker, RecordRange
from anyrecord.beam._read import reading_of
from anyrecord.beam._source import ReadRanges, RecordSource
from apache_beam.io import source_test_utils
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from conformance.formats import CASES, FIRST_CASES, Case

from .files import RECORDS, write

pytestmark = pytest.mark.framework

FRACTIONS = [number / 16 for number in range(16)]


def source_of(file: FileRange | str, *, desired: int = 1 << 20, **options: Any) -> RecordSource:
    file = FileRange(file) if isinstance(file, str) else file
    return RecordSource(file, reading_of("test", None, False, desired, options))


def do_fn(*, desired: int = 1 << 20, **options: Any) -> ReadRanges:
    return ReadRanges(reading_of("test", None, True, desired, options))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_beams_exhaustive_splits_of_every_format(case: Case) -> None:
    source = source_of(write("a", case, RECORDS[:12]))
    assert source_test_utils.read_from_source(source) == RECORDS[:12]
    source_test_utils.assert_split_at_fraction_exhaustive(source, perform_multi_threaded_test=False)
    source_test_utils.assert_reentrant_reads_succeed((source, None, None))


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_beams_exhaustive_splits_in_two_threads(case: Case) -> None:
    source_test_utils.assert_split_at_fraction_exhaustive(source_of(write("a", case, RECORDS[:4])))


@pytest.mark.parametrize("desired", [1, 30, 100, 1 << 30])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bundles_together_are_the_file(case: Case, desired: int) -> None:
    source = source_of(write("a", case))
    bundles = list(source.split(desired))
    assert [bundle.start_position for bundle in bundles[1:]] == [bundle.stop_position for bundle in bundles[:-1]]
    assert sum(bundle.weight for bundle in bundles) == pytest.approx(source.estimate_size(), abs=1)
    parts = [(bundle.source, bundle.start_position, bundle.stop_position) for bundle in bundles]
    source_test_utils.assert_sources_equal_reference_source((source, None, None), parts)
    if case.variant.is_unpacked_at_open:
        assert len(bundles) == 1, "a worker that reads a part of it would unpack all of it"
    elif desired == 1:
        chunks = {case.chunk_and_row(index)[0] for index in range(len(RECORDS))}
        assert len(bundles) == len(chunks), "one bundle for each chunk, and never a part of one"


class Slow:
    """Reads a range step by step, as a runner with a slow consumer does."""

    def __init__(self, fn: ReadRanges, file: FileRange, restriction: RecordRange) -> None:
        self.tracker = fn.create_tracker(restriction)
        self.found: list[Any] = []
        self._records: Iterator[Any] = fn.process(file, self.tracker)  # type: ignore[no-untyped-call]

    def take(self, count: int) -> None:
        self.found += itertools.islice(self._records, count)

    def finish(self) -> list[Any]:
        self.found += self._records
        self.tracker.check_done()
        return self.found


def restriction_of(fn: ReadRanges, file: FileRange) -> RecordRange:
    """The whole file as one range."""
    (whole,) = fn.split(file, fn.initial_restriction(file))
    return whole


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_split_after_every_record(case: Case) -> None:
    records = RECORDS[:12]
    path = write("a", case, records)
    fn, file = do_fn(), FileRange(path)
    expected = [(path, index, record) for index, record in enumerate(records)]
    splits = 0
    for taken, fraction in itertools.product(range(len(records) + 1), FRACTIONS):
        slow = Slow(fn, file, restriction_of(fn, file))
        slow.take(taken)
        split = slow.tracker.try_split(fraction)
        found = slow.finish()
        if split is None:
            assert found == expected
            continue
        splits += 1
        primary, rest = split
        assert (primary.start, primary.stop, rest.stop) == (0, rest.start, len(records))
        assert primary.stop >= taken, "what was claimed is never given away"
        assert found == expected[: primary.stop]
        assert Slow(fn, file, rest).finish() == expected[rest.start :]
        assert fn.restriction_size(file, primary) + fn.restriction_size(file, rest) == pytest.approx(
            fn.restriction_size(file, restriction_of(fn, file))
        )
    assert splits > len(records) * 8


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_what_was_split_is_split_again_until_nothing_is_left(case: Case) -> None:
    path = write("a", case)
    fn, file = do_fn(), FileRange(path)
    for fraction in (0, 0.3, 0.5, 0.9):
        waiting, found = [restriction_of(fn, file)], []
        while waiting:
            slow = Slow(fn, file, waiting.pop())
            for _ in range(len(RECORDS)):
                slow.take(1)
                if (split := slow.tracker.try_split(fraction)) is not None:
                    waiting.append(split[1])
            found += slow.finish()
        assert sorted(found) == [(path, index, record) for index, record in enumerate(RECORDS)]


def test_a_part_of_a_file_has_the_numbers_of_the_file() -> None:
    path = write("a", FIRST_CASES[0])
    fn, file = do_fn(desired=1), FileRange(path, 10, 13)
    parts = list(fn.split(file, fn.initial_restriction(file)))
    assert [(part.start, part.stop) for part in parts] == [(10, 11), (11, 12), (12, 13)]
    found = [record for part in parts for record in Slow(fn, file, part).finish()]
    assert found == [(path, index, RECORDS[index]) for index in (10, 11, 12)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_file_without_records_has_no_bundles(case: Case) -> None:
    fn, file = do_fn(), FileRange(write("a", case, []))
    whole = fn.initial_restriction(file)
    assert (whole.start, whole.stop, list(fn.split(file, whole))) == (0, 0, [])
    assert Slow(fn, file, whole).finish() == []


def test_bundles_are_balanced_by_bytes_not_by_records() -> None:
    with anyrecord.create("a.ffr") as out:
        out.write_many([b"x"] * 1000 + [bytes(1000)] * 1000)
    fn, file = do_fn(desired=100_000), FileRange("a.ffr")
    parts = list(fn.split(file, fn.initial_restriction(file)))
    assert len(parts) == 10
    sizes = [fn.restriction_size(file, part) for part in parts]
    assert max(sizes) < 1.3 * min(sizes)
    assert parts[0].stop > 1000


def test_splits_fall_between_chunks_if_that_is_near() -> None:
    with anyrecord.create("a.array_record", group_size=10) as out:
        out.write_many(b"%d" % number for number in range(1000))
    fn, file = do_fn(), FileRange("a.array_record")
    whole = restriction_of(fn, file)
    assert whole.cuts
    assert all(cut % 10 == 0 for cut in whole.cuts)
    for taken in range(0, 500, 7):
        slow = Slow(fn, file, restriction_of(fn, file))
        slow.take(taken)
        primary, rest = slow.tracker.try_split(0.5)
        assert primary.stop % 10 == 0
        assert abs(primary.stop - (taken + 1000) / 2) <= 20
        assert rest.start == primary.stop


def test_a_chunk_is_divided_if_its_consumer_is_slow() -> None:
    tracker = RangeTracker(RecordRange(0, 100, 1000, ()))
    assert tracker.try_claim(0)
    assert tracker.try_split(0.5)[0].stop == 50
    only_far_cuts = RangeTracker(RecordRange(0, 100, 1000, (2, 98)))
    assert only_far_cuts.try_claim(0)
    assert only_far_cuts.try_split(0.5)[0].stop == 50


def test_cuts_change_where_but_not_whether_ranges_are_split() -> None:
    for cuts in [(), (5,), (1, 2, 3), (4, 8), tuple(range(1, 10))]:
        for taken, fraction in itertools.product(range(10), FRACTIONS):
            ours, of_beam = RangeTracker(RecordRange(0, 10, 0, cuts)), OffsetRestrictionTracker(RecordRange(0, 10, 0))
            for index in range(taken):
                assert ours.try_claim(index) == of_beam.try_claim(index)
            split, expected = ours.try_split(fraction), of_beam.try_split(fraction)
            assert (split is None) == (expected is None)
            if split is not None and fraction == 0:
                assert (split[0].stop, split[1].start) == (expected[0].stop, expected[1].start), "a checkpoint is exact"
            if split is not None:
                assert taken <= split[0].stop == split[1].start < 10


def test_a_chunk_is_read_whole_so_that_it_is_decoded_once() -> None:
    with anyrecord.create("a.recordio") as out:
        out.write_many(bytes([number % 256]) * 1000 for number in range(5000))
    source = source_of("a.recordio", cache_bytes=0)
    file = source._open()
    assert len(file.batch(0, 5000)) == 5000
    assert len(file.batch(4000, 5000)) == 1000
    assert [file.next_chunk(index) for index in (0, 1, 2500, 4999)] == [5000] * 4


def test_a_file_that_was_replaced_is_opened_anew() -> None:
    case = FIRST_CASES[0]
    source = source_of(write("a", case, [b"old"]))
    assert source_test_utils.read_from_source(source) == [b"old"]
    Path(f"a{case.suffix}").unlink()
    write("a", case, [b"new", b"newer"])
    assert source_test_utils.read_from_source(source) == [b"new", b"newer"]
