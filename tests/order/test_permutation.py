"""The orders of the core against the slow ones of `reference`, and what Python sees of them."""

from __future__ import annotations

import pickle
import tracemalloc
from array import array
from typing import Any

import anyrecord
import numpy as np
import pytest
from anyrecord import Permutation
from hypothesis import given
from hypothesis import strategies as st

from . import reference

words = st.integers(0, 2**64 - 1)


@given(length=st.integers(0, 300), seed=words, epoch=words)
def test_short_orders_are_those_of_the_reference(length: int, seed: int, epoch: int) -> None:
    permutation = Permutation(length, seed, epoch)
    expected = reference.Permutation(length, seed, epoch).all()
    assert permutation.take(range(length)).tolist() == expected
    assert [permutation[position] for position in range(length)] == expected
    assert [permutation.inverse(number) for number in expected] == list(range(length))


@given(data=st.data(), length=st.integers(1, 2**63), seed=words, epoch=words)
def test_long_orders_are_those_of_the_reference(data: st.DataObject, length: int, seed: int, epoch: int) -> None:
    # Python indexes with signed 64-bit integers, which is one short of the very last.
    position = data.draw(st.integers(0, min(length, 2**63 - 1) - 1))
    number = Permutation(length, seed, epoch)[position]
    assert number == reference.Permutation(length, seed, epoch)(position)
    assert number == 2**63 - 1 or Permutation(length, seed, epoch).inverse(number) == position


@given(
    length=st.integers(0, 200),
    seed=words,
    epoch=words,
    block=st.integers(1, 30),
    window=st.integers(1, 10),
    cuts=st.sets(st.integers(1, 199), max_size=5),
)
def test_block_orders_are_those_of_the_reference(
    length: int, seed: int, epoch: int, block: int, window: int, cuts: set[int]
) -> None:
    inside = sorted(cut for cut in cuts if cut < length)
    permutation = Permutation(length, seed, epoch, window, block, inside)
    expected = reference.block_shuffle(length, seed, epoch, block, window, inside)
    assert permutation.take(range(length)).tolist() == expected
    assert [permutation[position] for position in range(length)] == expected
    assert [permutation.inverse(number) for number in expected] == list(range(length))
    assert sorted(expected) == list(range(length))


@pytest.mark.parametrize("seed", [0, 1])
def test_golden_orders(seed: int) -> None:
    """Written down, in case the reference and the core ever change together."""
    expected = [[0, 5, 9, 3, 6, 4, 1, 2, 8, 7], [0, 8, 3, 9, 6, 4, 2, 7, 5, 1]][seed]
    assert list(Permutation(10, seed).take(range(10))) == expected
    if seed == 0:
        blocks = Permutation(23, 42, 3, 2, 4, [10]).take(range(23)).tolist()
        assert blocks == [22, 9, 8, 16, 14, 18, 21, 20, 19, 15, 17, 1, 5, 7, 2, 3, 6, 0, 4, 10, 13, 11, 12]


def test_a_billion_take_no_memory() -> None:
    tracemalloc.start()
    try:
        permutation = Permutation(10**9, seed=42, epoch=3)
        assert (permutation[0], permutation.inverse(678463446), len(permutation)) == (678463446, 0, 10**9)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert len(pickle.dumps(permutation)) < 100


def test_many_positions_come_as_an_array() -> None:
    permutation = Permutation(1000, 7)
    expected = [permutation[i] for i in (5, 999, 0, 5)]
    for positions in ([5, -1, 0, 5], np.array([5, 999, 0, 5]), array("q", [5, 999, 0, 5]), (5, 999, 0, 5)):
        taken = permutation.take(positions)
        assert isinstance(taken, array)
        assert taken.typecode == "Q"
        assert taken.tolist() == expected
    assert np.asarray(taken).dtype == np.uint64
    with pytest.raises(IndexError):
        permutation.take([1000])
    with pytest.raises(TypeError):
        permutation[[1, 2]]  # type: ignore[index]


@pytest.mark.parametrize(
    "permutation", [Permutation(9, 1, 2), Permutation(9, 1, 2, 2, 3), Permutation(9, 1, 2, 2, 3, [4])]
)
def test_it_pickles_compares_and_tells_what_it_is(permutation: Permutation) -> None:
    again = pickle.loads(pickle.dumps(permutation))
    assert again == permutation
    assert eval(repr(permutation)) == permutation
    assert permutation != Permutation(9, 1, 3)


def test_wrong_arguments_are_refused() -> None:
    wrong: list[tuple[Any, ...]] = [
        (2**63 + 1, 0),
        (10, 0, 0, 5, None),
        (10, 0, 0, None, 5),
        (10, 0, 0, 0, 5),
        (10, 0, 0, 5, 5, [0]),
        (10, -1),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError):
            Permutation(*arguments)
    assert Permutation(2**63, 0).length == 2**63
    with pytest.raises(OverflowError, match="length"):
        len(Permutation(2**63, 0))
    assert "Permutation" in anyrecord.__all__
