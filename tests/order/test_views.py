"""Shuffle, shard, slice, map, concat and mix: each a sequence again, whatever it is put on."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import anyrecord
import numpy as np
import pytest
from anyrecord import MappedRecords, Records
from hypothesis import given, settings
from hypothesis import strategies as st

from . import reference
from .conftest import N


def listed(records: Records) -> list[int]:
    return [int(record) for record in records]


def test_a_shuffle_is_the_permutation_of_its_seed_and_epoch(numbers: Records) -> None:
    assert listed(numbers.shuffle(42, 3)) == reference.Permutation(N, 42, 3).all()
    assert listed(numbers.shuffle(seed=42)) == reference.Permutation(N, 42, 0).all()
    assert listed(numbers[10:20].shuffle(1)) == [10 + i for i in reference.Permutation(10, 1, 0).all()]


def test_a_block_shuffle_is_that_of_the_reference(numbers: Records) -> None:
    found = listed(numbers.shuffle(42, 3, window=4, block=16))
    assert found == reference.block_shuffle(N, 42, 3, 16, 4)


@pytest.mark.parametrize("of", [1, 2, 3, 8, 999, 1000, 1001])
def test_shards_are_everything_once_and_differ_by_one_at_most(numbers: Records, of: int) -> None:
    order = numbers.shuffle(5)
    shards = [order.shard(rank, of=of) for rank in range(of)]
    lengths = {len(shard) for shard in shards}
    assert max(lengths) - min(lengths) <= 1
    # Taking turns, they are the order itself.
    everything = listed(order)
    for rank in (0, of // 2, of - 1):
        assert listed(shards[rank]) == everything[rank::of]
    assert sum(map(len, shards)) == N


# A layer on a view, and the same done to a list.
Layer = tuple[Callable[[Records], Records], Callable[[list[int]], list[int]]]


def _mixed(items: list[int], weights: list[int], until: Literal["first", "all"]) -> list[int]:
    """Two copies of a list by weight: from the reference, cut where the rule says."""
    drawn, order = [0, 0], []
    for source in reference.mixture(weights, 7, 20 * len(items) + 20):
        if until == "first" and drawn[source] == len(items):
            break
        if until == "all" and min(drawn) >= len(items):
            break
        order.append(items[drawn[source] % len(items)])
        drawn[source] += 1
    return order


def _permuted(items: list[int], order: list[int]) -> list[int]:
    return [items[i] for i in order]


def _in_blocks(length: int) -> list[int]:
    return reference.block_shuffle(length, 3, 1, 7, 2)


LAYERS: dict[str, Layer] = {
    "shuffle": (lambda r: r.shuffle(3, 1), lambda x: _permuted(x, reference.Permutation(len(x), 3, 1).all())),
    # On a shuffle, whose positions belong to no file: elsewhere blocks begin where files do.
    "blocks": (
        lambda r: r.shuffle(8).shuffle(3, 1, window=2, block=7),
        lambda x: _permuted(_permuted(x, reference.Permutation(len(x), 8, 0).all()), _in_blocks(len(x))),
    ),
    "shard": (lambda r: r.shard(1, of=2), lambda x: x[1::2]),
    "slice": (lambda r: r[-2:3:-1], lambda x: x[-2:3:-1]),
    "concat": (lambda r: anyrecord.concat([r, r[:5], r]), lambda x: [*x, *x[:5], *x]),
    "add": (lambda r: r + r[1:], lambda x: x + x[1:]),
    "mix": (
        lambda r: anyrecord.mix([r, r], [3, 2], seed=7) if len(r) else r,
        lambda x: _mixed(x, [3, 2], "first") if x else x,
    ),
    "mix all": (
        lambda r: anyrecord.mix([r, r], [1, 4], seed=7, until="all") if len(r) else r,
        lambda x: _mixed(x, [1, 4], "all") if x else x,
    ),
}


@settings(deadline=None, max_examples=150)
@given(names=st.lists(st.sampled_from(sorted(LAYERS)), max_size=5), chance=st.randoms())
def test_any_stack_of_views_is_the_same_done_to_a_list(numbers_path: Path, names: list[str], chance: Any) -> None:
    view, expected = anyrecord.open(numbers_path)[100:130], list(range(100, 130))
    for name in names:
        on_view, on_list = LAYERS[name]
        if len(expected) < 500:
            view, expected = on_view(view), on_list(expected)
    assert len(view) == len(expected)
    assert listed(view) == expected
    assert [int(record) for batch in view.batches(7) for record in batch] == expected
    if expected:
        some = [chance.randrange(-len(expected), len(expected)) for _ in range(20)]
        assert [int(record) for record in view[some]] == [expected[i] for i in some]
        assert [int(view[i]) for i in some] == [expected[i] for i in some]
        assert view.map(int).shuffle(9).map(str)[0] == str(listed(view.shuffle(9))[0])
    again = pickle.loads(pickle.dumps(view))
    assert listed(again) == expected
    assert repr(again) == repr(view)


def test_a_view_of_one_file_pickles_in_a_few_hundred_bytes(numbers: Records) -> None:
    views = [
        numbers.shuffle(2**64 - 1, 10**6),
        numbers.shuffle(1, 2, window=64, block=100),
        numbers.shuffle(1)[5:].shard(3, of=8).shuffle(2),
        anyrecord.concat([numbers.shuffle(1), numbers[3:]]),
        anyrecord.mix([numbers.shuffle(1), numbers[::2]], [0.7, 0.3], seed=2**63),
    ]
    for view in views:
        assert len(pickle.dumps(view)) - len(numbers.paths[0]) < 500


def test_the_repr_is_the_same_in_another_process(numbers: Records) -> None:
    code = """
import sys, anyrecord
records = anyrecord.open(sys.argv[1])
print(repr(anyrecord.mix([records.shuffle(1).shard(1, of=3), records.shuffle(2, window=2, block=10)], [1, 2], seed=5)))
"""
    sources = [numbers.shuffle(1).shard(1, of=3), numbers.shuffle(2, window=2, block=10)]
    here = repr(anyrecord.mix(sources, [1, 2], seed=5))
    there = subprocess.run([sys.executable, "-c", code, numbers.paths[0]], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here
    others = [numbers, numbers.shuffle(1), numbers.shuffle(1, 1), numbers.shuffle(2), numbers[1:], sources[1]]
    assert len({repr(view) for view in others}) == len(others)


class CountedReads(io.BytesIO):
    """A file that notes where it is read."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.reads: list[tuple[int, int]] = []

    def readinto(self, buffer: Any) -> int:
        self.reads.append((self.tell(), len(buffer)))
        return super().readinto(buffer)

    def read(self, size: int | None = -1) -> bytes:
        self.reads.append((self.tell(), -1 if size is None else size))
        return super().read(size)


def test_reading_through_a_stack_is_one_batched_read(numbers_path: Path) -> None:
    file = CountedReads(numbers_path.read_bytes())
    records = anyrecord.open(_Plain(file))  # type: ignore[arg-type]
    stack = anyrecord.mix([records.shuffle(1).shard(1, of=2), records[::-1]], [1, 1]).shuffle(3, window=4, block=8)[5:]
    positions = list(range(64))
    expected = [int(record) for record in stack[positions]]
    file.reads.clear()
    assert [int(record) for record in records[expected]] == expected
    plain = list(file.reads)
    file.reads.clear()
    assert [int(record) for record in stack[positions]] == expected
    assert file.reads == plain
    file.reads.clear()
    assert [int(record) for record in next(iter(stack.batches(64)))] == expected
    assert file.reads == plain


class _Plain:
    """A file object, and no more than that: a BytesIO would be taken as bytes."""

    def __init__(self, file: io.BytesIO) -> None:
        self.read, self.seek, self.tell, self.readinto = file.read, file.seek, file.tell, file.readinto

    def seekable(self) -> bool:
        return True


# Blocks


@pytest.fixture
def grouped(tmp_path: Path) -> Records:
    for name, count in (("a", 95), ("b", 200), ("c", 7)):
        with anyrecord.create(tmp_path / f"{name}.array_record", group_size=10, durable=False) as out:
            out.write_many(b"%s%d" % (name.encode(), i) for i in range(count))
    return anyrecord.open(str(tmp_path / "*.array_record"))


def chunks_of(view: Records) -> list[tuple[str, int]]:
    return [(where.path, where.chunk) for where in map(view.locate, range(len(view)))]


def test_blocks_are_the_chunks_of_the_files(grouped: Records) -> None:
    everything = list(grouped)
    for view in (grouped.shuffle(1, window=3), grouped[23:250].shuffle(2, window=3)):
        found = chunks_of(view)
        last = {chunk: i for i, chunk in enumerate(found)}
        first = {chunk: len(found) - 1 - i for i, chunk in enumerate(reversed(found))}
        assert all(last[chunk] - first[chunk] < 3 * 10 for chunk in first), "a chunk is spread over more than a window"
    assert Counter(grouped.shuffle(1, window=3)) == Counter(everything)
    assert list(grouped.shuffle(1, window=3)) != list(grouped.shuffle(1, 1, window=3))
    both = grouped[15:80] + grouped[130:]
    assert Counter(both.shuffle(1, window=2)) == Counter(both)


def test_each_chunk_is_near_its_own_records_only(grouped: Records) -> None:
    """In windows of 1 block, a chunk is read from its first record to its last before the next one."""
    found = chunks_of(grouped.shuffle(4, window=1))
    changes = sum(a != b for a, b in pairwise(found))
    assert changes == len(set(found)) - 1


def test_a_block_is_asked_for_where_chunks_do_not_tell(numbers: Records, grouped: Records, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds 1 record; pass block="):
        numbers.shuffle(1, window=4)
    with anyrecord.create(tmp_path / "d.array_record", group_size=20) as out:
        out.write_many([b"x"] * 100)
    with pytest.raises(ValueError, match="same number of records; pass block="):
        (grouped + anyrecord.open(tmp_path / "d.array_record")).shuffle(1, window=4)
    with pytest.raises(ValueError, match="block= needs window="):
        numbers.shuffle(1, block=4)


def test_wrong_numbers_are_refused(numbers: Records) -> None:
    calls: list[Callable[[], object]] = [
        lambda: numbers.shuffle(-1),
        lambda: numbers.shuffle(2**64),
        lambda: numbers.shuffle(0, -1),
        lambda: numbers.shuffle(0, window=0, block=1),
        lambda: numbers.shuffle(0, window=1, block=0),
        lambda: numbers.shard(0, of=0),
        lambda: numbers.shard(2, of=2),
        lambda: numbers.shard(-1, of=2),
    ]
    for call in calls:
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError, match=r"seed=1.5 is not valid: it must be a whole number from 0 to .*, not float"):
        numbers.shuffle(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="views on top of each other"):
        reduce(Records.shuffle, range(100), numbers)
    assert listed(numbers.shuffle(np.int64(3))) == listed(numbers.shuffle(3))


# Concat and mix


def test_a_long_sum_is_one_flat_view(numbers: Records) -> None:
    total = numbers[:1]
    for i in range(1, 300):
        total = total + numbers[i : i + 1]
    assert listed(pickle.loads(pickle.dumps(total))) == list(range(300))
    assert len(total.paths) == 1, "views of the same files share them"
    assert listed(anyrecord.concat(numbers[i : i + 1] for i in range(50))) == list(range(50))


def test_shares_of_a_mixture_are_exact_at_any_moment(numbers: Records) -> None:
    sources = [numbers[:400], numbers[400:700], numbers[700:]]
    mixed = anyrecord.mix(sources, [0.5, 0.3, 0.2], seed=11, length=5000)
    drawn = [0, 0, 0]
    for position, number in enumerate(listed(mixed), 1):
        source = 0 if number < 400 else 1 if number < 700 else 2
        assert number == [0, 400, 700][source] + drawn[source] % len(sources[source]), "each source in its own order"
        drawn[source] += 1
        assert all(abs(n - position * share) < 2 for n, share in zip(drawn, (0.5, 0.3, 0.2), strict=True))


def test_a_mixture_is_that_of_the_reference(numbers: Records) -> None:
    sources = [numbers[i * 100 : (i + 1) * 100] for i in range(5)]
    mixed = anyrecord.mix(sources, [5, 1, 1, 2, 9], seed=3, length=300)
    found = [number // 100 for number in listed(mixed)]
    assert found == reference.mixture([5, 1, 1, 2, 9], 3, 300)
    assert found[:10] == [2, 1, 4, 3, 4, 0, 0, 4, 4, 0]


def test_where_a_mixture_ends(numbers: Records) -> None:
    small, large = numbers[:10], numbers[10:]
    first = listed(anyrecord.mix([small, large], [1, 3]))
    assert len(set(first)) == len(first)
    assert set(range(10)) < set(first)
    every = listed(anyrecord.mix([small, large], [1, 3], until="all"))
    assert set(every) == set(range(N))
    assert Counter(every)[10] == 1
    assert Counter(every)[0] == 33
    assert len(anyrecord.mix([small, large], [1, 3], length=7)) == 7


def test_ranks_see_the_mixture_too(numbers: Records) -> None:
    mixed = anyrecord.mix([numbers[:500], numbers[500:]], [1, 1], seed=2)
    share = sum(number < 500 for number in listed(mixed.shard(0, of=2))) / len(mixed.shard(0, of=2))
    assert 0.4 < share < 0.6


def test_one_source_needs_one_weight(numbers: Records) -> None:
    with pytest.raises(ValueError, match=r"^1 source needs 1 weight, not 2$"):
        anyrecord.mix([numbers], [1, 2])


def test_weights_are_taken_as_written(numbers: Records) -> None:
    sources = [numbers[:300], numbers[300:600], numbers[600:]]
    as_written: list[Any] = [
        [0.1, 0.2, 0.7],
        [1, 2, 7],
        [Fraction(1, 10), Fraction(2, 10), 0.7],
        np.array([0.1, 0.2, 0.7]),
    ]
    assert len({repr(anyrecord.mix(sources, weights)) for weights in as_written}) == 1


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1], "2 sources need 2 weights, not 1"),
        ([1, 0], "positive"),
        ([1, -1], "positive"),
        ([1, float("nan")], "positive"),
        ([1, float("inf")], "positive"),
        ([1, "x"], "positive"),
        ([1e-30, 1], "differ too much"),
    ],
)
def test_weights_that_cannot_be_are_refused(numbers: Records, weights: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        anyrecord.mix([numbers, numbers], weights)


def test_sources_that_cannot_be_one_are_refused(numbers: Records, numbers_path: Path) -> None:
    with pytest.raises(ValueError, match="different options"):
        anyrecord.concat([numbers, anyrecord.open(numbers_path, checksums=False)])
    with pytest.raises(ValueError, match="at least one"):
        anyrecord.concat([])
    with pytest.raises(TypeError, match="not list"):
        anyrecord.concat([numbers, [b"x"]])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="source 1 has no records"):
        anyrecord.mix([numbers, numbers[:0]], [1, 1])
    with pytest.raises(ValueError, match="until"):
        anyrecord.mix([numbers, numbers], [1, 1], until="never")  # type: ignore[call-overload]
    different: list[MappedRecords[Any]] = [numbers.map(int), numbers.map(float)]
    with pytest.raises(ValueError, match="then call map"):
        anyrecord.concat(different)


def test_mapped_records_compose_as_well(numbers: Records) -> None:
    mapped = numbers.map(int)
    order = mapped.shuffle(4).shard(1, of=3)[::2]
    assert isinstance(order, MappedRecords)
    assert list(order) == listed(numbers.shuffle(4).shard(1, of=3)[::2])
    assert list(mapped[:2] + mapped[5:7]) == [0, 1, 5, 6]
    assert list(anyrecord.concat([mapped[:1], mapped[2:3]])) == [0, 2]
    mixed = anyrecord.mix([mapped[:10], mapped[10:]], [1, 1], seed=1)
    assert list(mixed) == listed(anyrecord.mix([numbers[:10], numbers[10:]], [1, 1], seed=1))
    assert list(pickle.loads(pickle.dumps(mixed))) == list(mixed)
