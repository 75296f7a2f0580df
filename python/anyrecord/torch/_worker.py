"""A worker process of `Loader(processes=...)`: it decodes and collates batches that the parent has read."""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
import signal
import traceback
from array import array
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler, recv_handle
from typing import Any, NamedTuple

import torch

from anyrecord._calls import stop_iteration_error

__all__ = ["Failed", "Job", "work"]


class Job(NamedTuple):
    """A batch to decode, as the parent describes it."""

    slot: int
    """The piece of shared memory that holds the records."""
    new_size: int | None
    """The size of the shared memory, if it is new. Its descriptor follows in a message of its own."""
    offsets: bytes
    """Where each record begins in the memory, and the end."""


class Failed(NamedTuple):
    """The error of a function, as the worker sends it."""

    error: Exception
    traceback: str
    record: int | None
    """Which record of the batch `decode` was called with, or None for an error of `collate`."""


def work(
    connection: Connection, decode: Sequence[Callable[[Any], Any]], collate: Callable[[list[Any]], Any] | None
) -> None:
    """Answers jobs until the parent ends the connection."""
    # Ctrl-C reaches all processes of a terminal. The parent decides what happens then, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)  # the other cores have workers of their own
    memory: dict[int, memoryview] = {}
    try:
        while (job := connection.recv()) is not None:
            if job.new_size is not None:
                memory[job.slot] = _map(recv_handle(connection), job.new_size)
            answer = _answer(memory[job.slot], job.offsets, decode, collate)
            connection.send_bytes(answer)
            del answer
    except (EOFError, ConnectionError):
        return  # the parent has ended


def _map(descriptor: int, size: int) -> memoryview:
    try:
        return memoryview(mmap.mmap(descriptor, size))
    finally:
        os.close(descriptor)


def _answer(
    memory: memoryview,
    offsets: bytes,
    decode: Sequence[Callable[[Any], Any]],
    collate: Callable[[list[Any]], Any] | None,
) -> memoryview:
    """The batch or the error, as a message."""
    samples: list[Any] = []
    is_decoded = False
    try:
        places = array("q", offsets)
        for begin, end in itertools.pairwise(places):
            value: Any = bytes(memory[begin:end])
            for function in decode:
                value = function(value)
            samples.append(value)
        is_decoded = True
        return ForkingPickler.dumps(samples if collate is None else collate(samples))
    except Exception as error:
        return ForkingPickler.dumps(_failed(error, None if is_decoded else len(samples)))


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
