"""`anyrecord.torch.Loader` with its default options: threads read ahead, without worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benches.libraries import pictures
from benches.libraries.job import Job
from benches.libraries.ours import name, version, write

__all__ = ["reader", "version", "write"]


def reader(job: Job) -> Callable[[], Iterator[Any]]:
    from anyrecord.torch import Loader

    options: dict[str, Any] = {"decode": pictures.decode, "collate": "tensors"} if job.pictures else {}

    def read() -> Iterator[Any]:
        yield from Loader(str(Path(job.folder) / name(job)), job.batch, shuffle=True, **options)

    return read
