"""Hugging Face datasets: an Arrow file that is mapped, in PyTorch's own DataLoader."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benches.libraries import through_torch
from benches.libraries.job import Job

FILE = "train.arrow"
ROWS = 1000
"""In an Arrow batch. It is the default of the library's own writer."""


def version() -> str:
    return f"datasets {metadata.version('datasets')}"


def write(job: Job) -> None:
    import pyarrow

    schema = pyarrow.schema([("sample", pyarrow.binary())])
    samples = job.samples()
    with pyarrow.OSFile(str(Path(job.folder) / FILE), "wb") as file, pyarrow.ipc.new_stream(file, schema) as out:
        while rows := list(itertools.islice(samples, ROWS)):
            out.write_batch(pyarrow.record_batch([pyarrow.array(rows, pyarrow.binary())], schema=schema))


@dataclass(frozen=True)
class Columns:
    """Reads a batch as a column. The library's own `__getitems__` makes a dictionary for each sample."""

    data: Any

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, numbers: list[int]) -> list[bytes]:
        found: list[bytes] = self.data[numbers]["sample"].to_pylist()
        return found


def reader(job: Job) -> Callable[[], Iterator[Any]]:
    import datasets

    def read() -> Iterator[Any]:
        data = datasets.Dataset.from_file(str(Path(job.folder) / FILE)).with_format("arrow")
        yield from through_torch.epoch(Columns(data), job)

    return read
