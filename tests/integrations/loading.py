"""What the tests of the loader share. Functions are at the top level, because worker processes import them by name."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyrecord
from anyrecord import Permutation

N = 150


def write_numbers(path: Path, n: int = N) -> Path:
    with anyrecord.create(path, durable=False) as out:
        out.write_many(b"%d" % i for i in range(n))
    return path


def order(n: int, seed: int = 1, epoch: int = 0) -> list[int]:
    return Permutation(n, seed, epoch).take(range(n)).tolist()


def numbers(batches: Any) -> list[int]:
    return [int(record) for batch in batches for record in batch]


def tensor(record: bytes) -> Any:
    import torch

    return torch.full((1 + int(record) % 3,), int(record))


def pair(record: bytes) -> Any:
    import torch

    return {"number": torch.tensor(int(record)), "name": record.decode()}


class NotPickled(Exception):
    """An exception that cannot be made again from its pickle."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fails_at_100(record: bytes) -> int:
    if record == b"100":
        raise KeyError("a hundred")
    return int(record)


def stops_at_100(record: bytes) -> int:
    if record == b"100":
        raise StopIteration
    return int(record)


def not_pickled_at_100(record: bytes) -> int:
    if record == b"100":
        raise NotPickled(1, 2)
    return int(record)


def dies_at_100(record: bytes) -> int:
    if record == b"100":
        os.kill(os.getpid(), signal.SIGKILL)
    return int(record)


def lambda_at_100(record: bytes) -> Any:
    return (lambda: 1) if record == b"100" else int(record)


def hangs(record: bytes) -> int:
    threading.Event().wait()
    return int(record)


def fails_to_collate(samples: list[int]) -> int:
    if 100 in samples:
        raise ZeroDivisionError("in vain")
    return sum(samples)


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Fails if threads, processes, or shared memory are there afterwards that were not there before."""
    threads, before = set(threading.enumerate()), shared_memory()
    yield
    left = {thread for thread in set(threading.enumerate()) - threads if "loader" in thread.name}
    assert left == set()
    assert [child for child in multiprocessing.active_children() if "loader" in child.name] == []
    assert len(shared_memory()) <= len(before)


def shared_memory() -> list[str]:
    """What this process has of the loader's shared memory: maps, descriptors, and files that have a name."""
    if not os.path.isdir("/proc/self/fd"):
        return []
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "anyrecord-loader" in line]
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    descriptors = [os.readlink(link) for link in links if os.path.lexists(link)]
    # Other programs have files there too; the names of PyTorch's begin with the process.
    named = [name for name in os.listdir("/dev/shm") if "anyrecord" in name or f"torch_{os.getpid()}_" in name]
    return maps + [path for path in descriptors if "anyrecord-loader" in path] + named


def refused_at_100(record: bytes) -> int:
    if record == b"100":
        raise ConnectionRefusedError("by a server that decode asks")
    return int(record)


def many_kinds(record: bytes) -> Any:
    """Tensors and arrays of many kinds, which cross to another process in one piece of memory."""
    import numpy as np
    import torch

    number = int(record)
    return {
        "views": torch.arange(12).reshape(3, 4).t()[1:],
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(number),
        "half": torch.full((3,), number, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "complex": torch.tensor([1 + 2j]).conj(),
        "needs gradient": torch.ones(2, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "array": np.arange(number % 5, dtype=np.float32),
        "objects": ["text", None, (1, b"bytes")],
    }


def random_numbers(record: bytes) -> tuple[float, float, float]:
    import random

    import numpy as np
    import torch

    return random.random(), float(np.random.rand()), float(torch.rand(()))
