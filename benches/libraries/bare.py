"""Decoding alone: the samples are in memory, and a thread for each core decodes them. Nothing is collated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benches import machine
from benches.libraries import pictures
from benches.libraries.job import Job


def version() -> str:
    import cv2

    return f"opencv {cv2.__version__}"


def write(job: Job) -> None:
    """There is nothing to write."""


def reader(job: Job) -> Callable[[], Iterator[Any]]:
    samples = list(job.samples())
    pictures.decode(samples[0])  # imports what it needs

    def read() -> Iterator[Any]:
        batches = [samples[at : at + job.batch] for at in range(0, len(samples), job.batch)]
        with ThreadPoolExecutor(machine.cores()) as threads:
            for decoded in threads.map(lambda batch: list(map(pictures.decode, batch)), batches):
                yield tuple(zip(*decoded, strict=True))

    return read
