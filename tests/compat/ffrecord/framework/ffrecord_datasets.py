"""Data sets that spawned workers can import."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from anyrecord.compat.ffrecord import FileReader, FileWriter
from anyrecord.compat.ffrecord.torch import Dataset


def write_numbers(path: str | Path, count: int, first: int = 0) -> str:
    """A file whose samples are numbers."""
    with FileWriter(path, count) as writer:
        for number in range(first, first + count):
            writer.write_one(np.int64(number))
    return str(path)


class Numbers(Dataset):
    """With `process`. Keeps a log of the batches that were read in this process."""

    def __init__(self, fnames: Any, check_data: bool = True) -> None:
        super().__init__(fnames, check_data)
        self.log: list[list[int]] = []

    def process(self, indices: Any, data: Any) -> Any:
        self.log.append(list(indices))
        return [int(sample.view(np.int64)[0]) for sample in data]


class OwnNumbers(Dataset):
    """With `__init__`, `__len__` and `__getitem__` of its own, that takes lists and nothing else."""

    def __init__(self, fname: str) -> None:
        self.reader = FileReader(fname, check_data=True)

    def __len__(self) -> int:
        return self.reader.n

    def __getitem__(self, indices: list[int]) -> list[int]:
        assert isinstance(indices, list)
        return [int(sample.view(np.int64)[0]) for sample in self.reader.read(indices)]


class Workers(Numbers):
    """Tells which process read a batch, and of how many samples."""

    def process(self, indices: Any, data: Any) -> Any:
        return [(os.getpid(), len(indices))] * len(indices)
