"""The records to measure with: six common sizes."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """Records of about one size."""

    name: str
    records: int
    mean_bytes: int
    is_text: bool

    def make(self, part: int = 1) -> list[bytes]:
        """Makes one `part`-th of the records, the same in every run: slices of a pool of words or of random bytes."""
        chance = random.Random(7)
        if self.is_text:
            letters = b"abcdefghijklmnopqrstuvwxyz"
            words = [bytes(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(4000)]
            pool = b" ".join(chance.choices(words, k=330_000))
        else:
            pool = chance.randbytes(8_000_000)
        made = []
        for _ in range(self.records // part):
            size = chance.randint(self.mean_bytes // 2, self.mean_bytes * 3 // 2)
            at = chance.randrange(len(pool) - size)
            made.append(pool[at : at + size])
        return made


WORKLOADS = [
    Workload("120 B", 200_000, 120, True),
    Workload("700 B", 100_000, 700, True),
    Workload("4 KB", 40_000, 4_000, True),
    Workload("20 KB", 6_000, 20_000, False),
    Workload("100 KB", 3_000, 100_000, False),
    Workload("1 MB", 200, 1_000_000, False),
]
"""Text up to 4 KB. Larger records are bytes that cannot be compressed, as pictures are."""


def named(name: str) -> Workload:
    """The workload of that name.

    >>> named("4 KB").mean_bytes
    4000
    """
    return next(workload for workload in WORKLOADS if workload.name == name)


THREE = [named("120 B"), named("4 KB"), named("100 KB")]
"""For benchmarks whose question does not need all sizes."""
