"""SPDL: threads that run a function. It has no format of its own, so they read a file by the offsets of samples."""

from __future__ import annotations

import array
import os
import random
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from benches.libraries.job import Job
from benches.libraries.pictures import Collate

FILE, OFFSETS = "train.bin", "train.offsets"
AHEAD = 4
"""Batches that may be ready."""


def version() -> str:
    return f"spdl {metadata.version('spdl')}"


def write(job: Job) -> None:
    offsets = array.array("q", [0])
    with open(Path(job.folder) / FILE, "wb") as out:
        for sample in job.samples():
            offsets.append(offsets[-1] + out.write(sample))
    (Path(job.folder) / OFFSETS).write_bytes(offsets.tobytes())


def reader(job: Job) -> Callable[[], Iterator[Any]]:
    import spdl.pipeline

    def read() -> Iterator[Any]:
        offsets = array.array("q", (Path(job.folder) / OFFSETS).read_bytes())
        order = list(range(len(offsets) - 1))
        random.Random(1).shuffle(order)
        batches = (order[at : at + job.batch] for at in range(0, len(order), job.batch))
        file = os.open(Path(job.folder) / FILE, os.O_RDONLY)
        finish = Collate(list, job.pictures)

        def batch(numbers: list[int]) -> Any:
            return finish([os.pread(file, offsets[i + 1] - offsets[i], offsets[i]) for i in numbers])

        builder = spdl.pipeline.PipelineBuilder().add_source(batches).pipe(batch, concurrency=job.workers)
        pipeline = builder.add_sink(AHEAD).build(num_threads=job.workers)
        with pipeline.auto_stop():
            yield from pipeline
        os.close(file)

    return read
