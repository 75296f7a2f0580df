"""PyTorch's own DataLoader over a map-style data set that reads a batch in one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benches.libraries.job import Job
from benches.libraries.pictures import Collate


def epoch(data: Any, job: Job) -> Iterator[Any]:
    """All batches in a random order. `data.__getitems__(numbers)` returns a list of bytes."""
    from torch.utils.data import DataLoader

    collate = Collate(list, job.pictures)
    yield from DataLoader(data, batch_size=job.batch, shuffle=True, num_workers=job.workers, collate_fn=collate)
