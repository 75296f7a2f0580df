"""Lance: rows are taken by number, in PyTorch's own DataLoader."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benches.libraries import through_torch
from benches.libraries.job import Job

FOLDER = "train.lance"
ROWS = 1000


def version() -> str:
    return f"pylance {metadata.version('pylance')}"


def write(job: Job) -> None:
    import lance
    import pyarrow

    schema = pyarrow.schema([("sample", pyarrow.binary())])
    samples = job.samples()

    def batches() -> Iterator[Any]:
        while rows := list(itertools.islice(samples, ROWS)):
            yield pyarrow.record_batch([pyarrow.array(rows, pyarrow.binary())], schema=schema)

    lance.write_dataset(batches(), str(Path(job.folder) / FOLDER), schema=schema)


@dataclass
class Rows:
    """Opens the data set in each worker process: its threads do not survive a fork."""

    path: str
    count: int
    data: Any = None

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, numbers: list[int]) -> list[bytes]:
        if self.data is None:
            import lance

            self.data = lance.dataset(self.path)
        found: list[bytes] = self.data.take(numbers, columns=["sample"])["sample"].to_pylist()
        return found


def reader(job: Job) -> Callable[[], Iterator[Any]]:
    import lance  # noqa: F401 - imported before the clock runs

    def read() -> Iterator[Any]:
        yield from through_torch.epoch(Rows(str(Path(job.folder) / FOLDER), job.count), job)

    return read
