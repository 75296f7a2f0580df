"""Measures how fast records are read, for `anyrecord bench`.

All contenders read the same records. How many these are is found out first, so that no measurement takes much longer
than it should: as many as the slowest contender reads in that time. Each round has a new reader. The contenders take
turns, so that noise affects them equally, and the best round counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from random import Random
from typing import Any, NamedTuple

from anyrecord.cli._contenders import Contender

__all__ = ["MOST_KEYS", "Job", "Measured", "measure"]

MOST_KEYS = 100_000


class Measured(NamedTuple):
    """One way of reading. `seconds` has the best round of each contender, by its name."""

    way: str
    is_cold: bool
    records: int
    bytes: int
    seconds: dict[str, float]

    def rate(self, name: str) -> float | None:
        """Records in each second."""
        return self.records / self.seconds[name] if name in self.seconds else None


class Job(NamedTuple):
    """What is measured."""

    opens: dict[str, Callable[[], Contender]]
    """Opens each contender, by its name."""
    length: int
    """How many records there are."""
    batch: int
    seconds: float
    rounds: int
    seed: int
    least: int = 1
    """At least so many records are read in order, however short `seconds` is."""
    cool: Callable[[], None] | None = None
    """Removes the files from the page cache. None: they are read once before, so that they are in it."""


def measure(job: Job, way: str, ways: dict[str, frozenset[str]]) -> Measured:
    """Measures one way of reading with all contenders that have it."""
    opens = {name: opened for name, opened in job.opens.items() if way in ways[name]}
    keys = _keys(job, way)
    for opened in opens.values():
        keys = keys[: _enough(opened, way, keys, job)]
    seconds: dict[str, float] = {}
    for _ in range(job.rounds):
        for name, opened in opens.items():
            took = min(_timed(opened, way, keys, job))
            seconds[name] = min(took, seconds.get(name, took))
    records = sum(map(len, keys)) if way == "batch" else len(keys)
    return Measured(way, job.cool is not None, records, _bytes(opens, way, keys), seconds)


def _keys(job: Job, way: str) -> Sequence[Any]:
    """What is read: numbers of records, or lists of them. The same numbers in every run."""
    if way == "in order":
        return range(job.length)
    chance = Random(job.seed)
    if job.cool is None:
        picks = [chance.randrange(job.length) for _ in range(MOST_KEYS)]
    else:  # a record that is read twice is not cold
        picks = chance.sample(range(job.length), min(job.length, MOST_KEYS))
    if way == "single":
        return picks
    return [picks[begin : begin + job.batch] for begin in range(0, max(len(picks) - job.batch, 0) + 1, job.batch)]


def _enough(opened: Callable[[], Contender], way: str, keys: Sequence[Any], job: Job) -> int:
    """How many keys the contender reads in about the given time, at least one. This also warms them."""
    if way == "in order":
        return _enough_in_order(opened, len(keys), job)
    if job.cool is not None:
        job.cool()
    with closing(opened()) as contender:
        read, end = contender.read(way), time.perf_counter() + job.seconds
        for number, key in enumerate(contender.prepared(way, keys), 1):
            read(key)
            if time.perf_counter() > end:
                return number
        return len(keys)


def _enough_in_order(opened: Callable[[], Contender], most: int, job: Job) -> int:
    """As `_enough`. If four times as many records take less than twice as long, it is the start that takes the time."""
    tried = least = min(job.least, most)
    took = min(_timed(opened, "in order", range(tried), job))
    is_start = True
    while tried < most and (is_start or took * 4 <= job.seconds):
        before, tried = took, min(tried * 4, most)
        took = min(_timed(opened, "in order", range(tried), job))
        is_start = took < before * 2 and took < job.seconds
    return max(least, min(most, int(tried * job.seconds / max(took, 1e-9))))


def _timed(opened: Callable[[], Contender], way: str, keys: Sequence[Any], job: Job) -> list[float]:
    """The seconds that a new reader takes, one for each of its functions."""
    if way != "in order":
        return [_clocked(opened, lambda contender: _each(contender, way, keys), job)]
    with closing(opened()) as contender:
        count = len(contender.in_order(len(keys)))
    return [
        _clocked(opened, lambda contender, which=which: contender.in_order(len(keys))[which], job)  # type: ignore[misc]
        for which in range(count)
    ]


def _clocked(opened: Callable[[], Contender], prepare: Callable[[Contender], Callable[[], object]], job: Job) -> float:
    if job.cool is not None:
        job.cool()
    with closing(opened()) as contender:
        act = prepare(contender)
        gc.collect()
        begin = time.perf_counter()
        act()
        return time.perf_counter() - begin


def _each(contender: Contender, way: str, keys: Sequence[Any]) -> Callable[[], object]:
    read, prepared = contender.read(way), contender.prepared(way, keys)

    def act() -> None:
        for key in prepared:
            read(key)

    return act


def _bytes(opens: dict[str, Callable[[], Contender]], way: str, keys: Sequence[Any]) -> int:
    """The size of the records, estimated from some of them."""
    picks = [pick for batch in keys for pick in batch] if way == "batch" else list(keys)
    some = picks[:: max(1, len(picks) // 256)][:256]
    with closing(opens["anyrecord"]()) as ours:
        mean = sum(len(ours.records([pick])[0]) for pick in some) / max(len(some), 1)
    return round(mean * len(picks))
