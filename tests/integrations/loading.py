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
    """Fails if threads, processes, or files in shared memory are there afterwards that were not there before."""
    before = shared_files()
    threads = set(threading.enumerate())
    yield
    left = {thread for thread in set(threading.enumerate()) - threads if "loader" in thread.name}
    assert left == set()
    assert [child for child in multiprocessing.active_children() if "loader" in child.name] == []
    assert shared_files() - before == set()


def shared_files() -> set[str]:
    """Files in shared memory that belong to this process or its children."""
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()
