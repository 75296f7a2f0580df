"""The orders, worked out slowly from their description: lists instead of arithmetic wherever that is possible.

The core must say the same for ever. Nothing here is shared with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isqrt

WORD = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def scramble(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def digest(words: Iterable[int]) -> int:
    state = STEP
    for word in words:
        turned = ((state << 23) | (state >> 41)) & WORD
        state = scramble(scramble((word + STEP) & WORD) ^ turned)
    return state


def even(number: int) -> int:
    return number + number % 2


class Permutation:
    """A shuffle of `range(length)` that belongs to a key."""

    def __init__(self, length: int, *key: int) -> None:
        self.length = length
        self.rows = even(isqrt(max(length - 1, 0)) + 1)
        self.columns = max(2, even(-(-length // self.rows)))
        state = digest([*key, length])
        rounds = 24 if length < 1 << 16 else 12
        self.keys = [scramble((state + STEP * (i + 1)) & WORD) for i in range(rounds)]

    def _cell(self, cell: int) -> int:
        row, column = divmod(cell, self.columns)
        for i, key in enumerate(self.keys):
            if i % 2 == 0:
                row = (row + (scramble(column ^ key) * self.rows >> 64)) % self.rows
            else:
                column = (column + (scramble(row ^ key) * self.columns >> 64)) % self.columns
        return row * self.columns + column

    def __call__(self, position: int) -> int:
        cell = self._cell(position)
        while cell >= self.length:
            cell = self._cell(cell)
        return cell

    def all(self) -> list[int]:
        return [self(position) for position in range(self.length)]


def block_shuffle(length: int, seed: int, epoch: int, block: int, window: int, cuts: Sequence[int] = ()) -> list[int]:
    """Blocks in permuted order, the records of each window of blocks permuted among themselves."""
    records = list(range(length))
    edges = [0, *cuts, length]
    parts = [records[a:b] for a, b in pairwise(edges)]
    blocks = [part[i : i + block] for part in parts for i in range(0, len(part), block)]
    blocks = [blocks[i] for i in Permutation(len(blocks), seed, epoch, 1).all()]
    order: list[int] = []
    for number, first in enumerate(range(0, len(blocks), window)):
        together = [record for one in blocks[first : first + window] for record in one]
        order += [together[i] for i in Permutation(len(together), seed, epoch, 2, number).all()]
    return order


def mixture(weights: Sequence[int], seed: int, length: int, first: int = 0) -> list[int]:
    """The source of each of `length` positions, numbered from `first` on."""
    if len(weights) == 1:
        return [first] * length
    middle = len(weights) // 2
    left, both = sum(weights[:middle]), sum(weights)
    light = min(left, both - left)
    key = digest([seed, first, first + len(weights)])
    is_light = [False] * length
    for stretch in range(length * light // both + 1):
        begin, end = stretch * both // light, (stretch + 1) * both // light
        place = begin + (scramble(key ^ scramble(stretch)) * (end - begin) >> 64)
        if place < length:
            is_light[place] = True
    to_left = [side == (left <= both - left) for side in is_light]
    lefts = iter(mixture(weights[:middle], seed, sum(to_left), first))
    rights = iter(mixture(weights[middle:], seed, length - sum(to_left), first + middle))
    return [next(lefts) if side else next(rights) for side in to_left]
