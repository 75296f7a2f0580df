"""Data sets that return many samples in one call: `dataset[[3, 1, 4]]`."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import accumulate
from typing import Any, SupportsIndex

import torch.utils.data

from anyrecord.compat.ffrecord.reader import FileReader

__all__ = ["ConcatDataset", "Dataset", "ReaderRegistry", "Subset"]


class ReaderRegistry:
    """An object with readers, or other registries, among its attributes."""

    def ffreaders(self) -> list[FileReader]:
        """Returns all readers: its own, and those of the registries and containers among its attributes."""
        return list({id(reader): reader for reader in _readers(self, set())}.values())


def _readers(thing: object, seen: set[int]) -> Iterator[FileReader]:
    if id(thing) in seen:
        return
    if isinstance(thing, FileReader):
        yield thing
        return
    if isinstance(thing, ReaderRegistry):
        inside: Iterable[object] = vars(thing).values()
    elif isinstance(thing, list | tuple):
        inside = thing
    elif isinstance(thing, dict):
        inside = thing.values()
    else:
        return
    seen.add(id(thing))
    for inner in inside:
        yield from _readers(inner, seen)


class Dataset(torch.utils.data.Dataset, ReaderRegistry):
    """A data set that reads one batch at a time. Subclass it and define one of these:

    - `process(indices, data)`: it gets the indices of a batch and a list of byte arrays, and returns a list of samples.
    - `__init__`, `__len__` and `__getitem__(indices)`: read with your own `FileReader`.

    >>> from anyrecord.compat.ffrecord import FileWriter
    >>> from anyrecord.compat.ffrecord.torch import Dataset
    >>> with FileWriter("doc.ffr", 3) as writer:
    ...     for sample in (b"cat", b"dog", b"bird"):
    ...         writer.write_one(sample)
    >>> class Words(Dataset):
    ...     def process(self, indices, data):
    ...         return [sample.tobytes().decode() for sample in data]
    >>> words = Words("doc.ffr")
    >>> len(words), words[[2, 0]], words[1]
    (3, ['bird', 'cat'], 'dog')
    """

    reader: FileReader

    def __init__(self, fnames: Any, check_data: bool = True) -> None:
        self.fnames = fnames
        self.reader = FileReader(fnames, check_data)

    def __len__(self) -> int:
        return self.reader.n

    def __getitem__(self, indices: Any) -> Any:
        if isinstance(indices, list | tuple):
            return self.process(indices, self.reader.read(indices))
        return _one(self, indices)

    def __getitems__(self, indices: list[int]) -> Any:
        """Returns a batch. PyTorch calls this method."""
        return self[indices]

    def process(self, indices: Any, data: list[Any]) -> Any:
        """Turns the bytes of a batch into samples."""
        raise NotImplementedError("define process(self, indices, data) in your data set")

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


def _one(dataset: Dataset, index: Any) -> Any:
    """Returns a single sample. Only PyTorch's own classes ask for one."""
    if not hasattr(type(index), "__index__") or hasattr(index, "__len__"):
        raise TypeError("indices must be a list of index")
    position = operator.index(index)
    if not -len(dataset) <= position < len(dataset):
        raise IndexError(f"sample {position} is out of range: there are {len(dataset)}")
    return dataset[[position % len(dataset)]][0]


class Subset(Dataset):
    """Some samples of a data set, by their indices."""

    def __init__(self, dataset: Any, indices: Sequence[SupportsIndex]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, indices: Any) -> Any:
        if isinstance(indices, list | tuple):
            return self.dataset[[self.indices[index] for index in indices]]
        return _one(self, indices)


class ConcatDataset(Dataset):
    """Several data sets, one after the other. A batch is read with one call to each data set that it needs."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        for dataset in self.datasets:
            if not isinstance(dataset, Dataset):
                raise AssertionError(f"datasets should be ffrecord.torch.Dataset objects, not {type(dataset).__name__}")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Sized]) -> list[int]:
        """Returns the position where each data set ends in the concatenation."""
        return list(accumulate(map(len, sequence)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, indices: Any) -> Any:
        if not isinstance(indices, list | tuple):
            return _one(self, indices)
        places = [self._place(index) for index in indices]
        wanted: dict[int, list[int]] = {}  # for each data set, its positions in the batch
        for position, (number, _) in enumerate(places):
            wanted.setdefault(number, []).append(position)
        samples: list[Any] = [None] * len(places)
        for number, positions in wanted.items():
            found = self.datasets[number][[places[position][1] for position in positions]]
            for position, sample in zip(positions, found, strict=True):
                samples[position] = sample
        return samples

    def _place(self, index: SupportsIndex) -> tuple[int, int]:
        """The number of the data set, and the index in that data set."""
        position = operator.index(index)
        if position < 0:
            if -position > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            position += len(self)
        if position >= len(self):
            raise IndexError(f"sample {position} is out of range: there are {len(self)}")
        number = bisect_right(self.cumulative_sizes, position)
        return number, position - (self.cumulative_sizes[number - 1] if number else 0)
