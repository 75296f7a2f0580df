"""anyrecord as the data set of PyTorch's own DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benches.libraries import through_torch
from benches.libraries.job import Job
from benches.libraries.ours import name, version, write

__all__ = ["reader", "version", "write"]


def reader(job: Job) -> Callable[[], Iterator[Any]]:
    import anyrecord

    def read() -> Iterator[Any]:
        with anyrecord.open(str(Path(job.folder) / name(job))) as records:
            yield from through_torch.epoch(records, job)

    return read
