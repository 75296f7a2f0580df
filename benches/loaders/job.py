"""A data set in a store, and what reading all of it has to deliver."""

from __future__ import annotations

import array
import itertools
import json
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property

BUCKET = "bucket"
ACCESS_KEY, SECRET_KEY = "bench-access-key", "bench-secret-key"
REGION = "us-east-1"
NUMBER_BYTES = 8
"""Each sample begins with its number, so it is known which samples arrived."""
COMPARED = 61
"""One of so many samples is compared byte by byte. Comparing all would take time that counts."""


@dataclass(frozen=True)
class Job:
    """What a child process has to write or to read."""

    prefix: str
    """The folder of the data set in the bucket."""
    count: int
    sample_bytes: int
    shard_bytes: int
    """About how large the shards of all formats are."""
    endpoint: str
    """The URL of the server."""
    folder: str
    """The folder for the files of the data set, or for the cache of a reader. It is empty."""
    workers: int = 0
    """Worker processes that read. With none, the process reads by itself."""
    full_shuffle: bool = False
    """Only for anyrecord, which else shuffles blocks of records. The other libraries have one way to shuffle."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def shards(self) -> int:
        return max(1, round(self.count * self.sample_bytes / self.shard_bytes))

    @property
    def batch(self) -> int:
        """Samples in a batch: at most 256, and about 8 MB."""
        return max(1, min(256, 8_000_000 // self.sample_bytes))

    @cached_property
    def _pool(self) -> bytes:
        return random.Random(7).randbytes(8_000_000 + self.sample_bytes)

    def sample(self, number: int) -> bytes:
        """A sample: its number, then random bytes. It is the same in every run."""
        at = number * 2_654_435_761 % 8_000_000
        return number.to_bytes(NUMBER_BYTES, "little") + self._pool[at : at + self.sample_bytes - NUMBER_BYTES]

    def samples(self) -> Iterator[bytes]:
        return map(self.sample, range(self.count))

    def check(self, batches: Iterable[Iterable[bytes]]) -> dict[str, float]:
        """Takes all samples and checks that all arrived. Returns what is known about their order.

        `repeated`: samples that came again. Libraries that give each worker the same number of samples repeat a few.
        `near`: the share of samples that came directly before or after one from the same hundredth of the data set.
        """
        order = array.array("q")
        for batch in batches:
            for sample in batch:
                number = int.from_bytes(sample[:NUMBER_BYTES], "little")
                order.append(number)
                if len(sample) != self.sample_bytes:
                    raise SystemExit(f"sample {number} has {len(sample)} bytes")
                if number % COMPARED == 0 and sample != self.sample(number):
                    raise SystemExit(f"sample {number} has wrong bytes")
        if missing := self.count - len(set(order)):
            raise SystemExit(f"{missing} of {self.count} samples did not arrive")
        near = sum(abs(a - b) * 200 < self.count for a, b in itertools.pairwise(order))
        return {"repeated": len(order) - self.count, "near": near / len(order)}


def environment(endpoint: str) -> dict[str, str]:
    """Variables that tell the clients of all libraries where the server is, and its keys."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "S3_ENDPOINT_URL": endpoint,
    }
