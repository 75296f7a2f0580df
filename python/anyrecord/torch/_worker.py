"""A worker process of `Loader(processes=...)`: it decodes and collates batches that the parent has read."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from anyrecord._calls import stop_iteration_error
from anyrecord.torch._shared import Answer, receive_memory

__all__ = ["Failed", "Job", "Work", "work"]


class Work(NamedTuple):
    """What a worker does."""

    decode: Sequence[Callable[[Any], Any]]
    collate: Callable[[list[Any]], Any] | None
    seed: int
    """Other than those of the other workers, so that random augmentations differ."""


class Job(NamedTuple):
    """A batch to decode, as the parent describes it. It is small, so that sending it never waits for the worker."""

    slot: int | None
    """The shared memory that holds the records. None if its contents follow in a message."""
    new_size: int | None
    """The size of the shared memory if it is new. Its descriptor follows."""
    offsets_at: int
    """Where in the memory the offsets begin. They say where each record begins, and the end."""
    num_records: int


class Failed(NamedTuple):
    """The error of a function, as the worker sends it."""

    error: Exception
    traceback: str
    record: int | None
    """Which record of the batch `decode` was called with, or None for an error of `collate`."""


def work(connection: Connection, todo: Work) -> None:
    """Answers jobs until the parent ends the connection."""
    # Ctrl-C reaches all processes of a terminal. The parent decides what happens then, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)  # the other cores have workers of their own
    _seed(todo.seed)
    parent = os.getppid()
    memory: dict[int, memoryview] = {}
    try:
        while (job := connection.recv()) is not None:
            if job.slot is None:
                records = memoryview(connection.recv_bytes())
            else:
                if job.new_size is not None:
                    memory[job.slot] = receive_memory(connection, job.new_size)
                records = memory[job.slot]
            answer = _answer(records, job, todo)
            answer.send(connection, parent)
            del answer, records  # not kept while this process waits
    except (EOFError, ConnectionError):
        return  # the parent has ended


def _seed(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


def _answer(records: memoryview, job: Job, todo: Work) -> Answer:
    samples: list[Any] = []
    is_decoded = False
    try:
        offsets = records[job.offsets_at : job.offsets_at + 8 * (job.num_records + 1)].cast("q")
        for begin, end in pairwise(offsets):
            value: Any = bytes(records[begin:end])
            for function in todo.decode:
                value = function(value)
            samples.append(value)
        is_decoded = True
        return Answer(samples if todo.collate is None else todo.collate(samples))
    except Exception as error:
        return Answer(_failed(error, None if is_decoded else len(samples)))


def _failed(error: Exception, record: int | None) -> Failed:
    text = "".join(traceback.format_exception(error))
    if isinstance(error, StopIteration):
        error = stop_iteration_error(error)
    try:
        # Some exceptions can be pickled, but the pickle cannot be read.
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return Failed(error, text, record)
