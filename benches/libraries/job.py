"""A data set in a store or in a folder, and what reading all of it has to deliver."""

from __future__ import annotations

import array
import itertools
import json
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benches.libraries import pictures
from benches.libraries.pictures import NUMBER_BYTES

BUCKET = "bucket"
ACCESS_KEY, SECRET_KEY = "bench-access-key", "bench-secret-key"
REGION = "us-east-1"
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
    """The URL of the server. Without one, the data set is in `folder`."""
    folder: str
    """The folder for the files of the data set, or for the cache of a reader of a remote one. It is empty at first."""
    workers: int = 0
    """Worker processes that read. With none, the process reads by itself."""
    full_shuffle: bool = False
    """Only for anyrecord, which else shuffles blocks of records. The other libraries have one way to shuffle."""

    spread: float = 0.0
    """Samples are up to this part of `sample_bytes` shorter or longer."""
    batch_samples: int = 0
    """Samples in a batch. 0: chosen by their size."""
    pictures: bool = False
    """Whether samples are pictures, which are decoded to tensors."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def shards(self) -> int:
        return max(1, round(self.count * self.sample_bytes / self.shard_bytes))

    @property
    def batch(self) -> int:
        """Samples in a batch. By default at most 256, and about 8 MB."""
        return self.batch_samples or max(1, min(256, 8_000_000 // self.sample_bytes))

    @property
    def is_local(self) -> bool:
        return not self.endpoint

    def files(self) -> list[Path]:
        """The files of a local data set."""
        return sorted(path for path in Path(self.folder).rglob("*") if path.is_file())

    @cached_property
    def _pool(self) -> bytes:
        return random.Random(7).randbytes(8_000_000 + round(self.sample_bytes * (1 + self.spread)))

    @cached_property
    def _pictures(self) -> list[bytes]:
        return pictures.make()

    def size(self, number: int) -> int:
        """The bytes of a sample that is no picture."""
        share = (number * 2_246_822_519 >> 7) % 1001 / 500 - 1
        return round(self.sample_bytes * (1 + self.spread * share))

    def sample(self, number: int) -> bytes:
        """A sample: its number, then random bytes or a picture. It is the same in every run."""
        begin = number.to_bytes(NUMBER_BYTES, "little")
        if self.pictures:
            return begin + self._pictures[number % len(self._pictures)]
        at = number * 2_654_435_761 % 8_000_000
        return begin + self._pool[at : at + self.size(number) - NUMBER_BYTES]

    def samples(self) -> Iterator[bytes]:
        return map(self.sample, range(self.count))

    def samples_in(self, batch: Any) -> int:
        """The number of samples in a batch as it was delivered."""
        return len(batch[1] if self.pictures else batch)

    def check(self, batches: Iterable[Any]) -> dict[str, float]:
        """Takes all batches and checks that all samples arrived. Returns what is known about their order.

        `repeated`: samples that came again. Libraries that give each worker the same number of samples repeat a few.
        `near`: the share of samples that came directly before or after one from the same hundredth of the data set.
        """
        order = array.array("q")
        for batch in batches:
            order.extend(pictures.numbers(*batch) if self.pictures else map(self._checked, self._cut(batch)))
        if missing := self.count - len(set(order)):
            raise SystemExit(f"{missing} of {self.count} samples did not arrive")
        near = sum(abs(a - b) * 200 < self.count for a, b in itertools.pairwise(order))
        return {"repeated": len(order) - self.count, "near": near / len(order)}

    def _cut(self, batch: Any) -> list[bytes]:
        """A batch as a list of bytes. One that came as a tensor has rows that are as long as the longest sample."""
        if isinstance(batch, list):
            return batch
        rows = [row.tobytes() for row in batch.numpy()]
        return [row[: self.size(int.from_bytes(row[:NUMBER_BYTES], "little"))] for row in rows]

    def _checked(self, sample: bytes) -> int:
        """The number of a sample."""
        number = int.from_bytes(sample[:NUMBER_BYTES], "little")
        if len(sample) != self.size(number):
            raise SystemExit(f"sample {number} has {len(sample)} bytes")
        if number % COMPARED == 0 and sample != self.sample(number):
            raise SystemExit(f"sample {number} has wrong bytes")
        return number


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
