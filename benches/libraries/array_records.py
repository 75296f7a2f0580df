"""The data source of `array_record`, which Grain uses too, in PyTorch's own DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from benches.libraries import through_torch
from benches.libraries.job import Job

FILE = "train.array_record"


def version() -> str:
    return f"array_record {metadata.version('array_record')}"


def write(job: Job) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(Path(job.folder) / FILE), "group_size:1,uncompressed")
    for sample in job.samples():
        writer.write(sample)
    writer.close()


def reader(job: Job) -> Callable[[], Iterator[Any]]:
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    def read() -> Iterator[Any]:
        yield from through_torch.epoch(ArrayRecordDataSource(str(Path(job.folder) / FILE)), job)

    return read
