"""`Dataset`: a map-style dataset for PyTorch's `DataLoader`, whose batches are one read each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import index
from typing import Any, Generic, SupportsIndex, TypeVar

import torch
import torch.utils.data

from anyrecord import _combine
from anyrecord._records import Openable
from anyrecord.torch._packed import PackedTensors
from anyrecord.torch._reading import PackedReader, Part, open_part, read_each

__all__ = ["Dataset", "concat"]

T = TypeVar("T")


class Dataset(torch.utils.data.Dataset, Generic[T]):
    """Records for PyTorch's `DataLoader`. A batch is one read, in the worker process that collates it.

    >>> import anyrecord
    >>> from anyrecord.torch import Dataset
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many([b"1", b"2", b"3"])
    >>> dataset = Dataset("doc.ffr", decode=int)
    >>> len(dataset), dataset[-1]
    (3, 3)
    >>> from torch.utils.data import DataLoader
    >>> list(DataLoader(dataset, batch_size=2))
    [tensor([1, 2]), tensor([3])]

    `source` is what `anyrecord.open` takes, with its options as keywords, or records that are open.

    With `packed=True`, a batch is a `PackedTensors`. It needs `collate_fn=packed_batch`. Worker processes read it into
    shared memory, so handing it over costs the same for any number of records:

    >>> from anyrecord.torch import packed_batch
    >>> next(iter(DataLoader(Dataset("doc.ffr", packed=True), batch_size=2, collate_fn=packed_batch)))
    PackedTensors(data=tensor([49, 50], dtype=torch.uint8), offsets=tensor([0, 1, 2]))
    """

    def __init__(
        self,
        source: Part | Openable,
        *,
        decode: Callable[[bytes], T] | None = None,
        packed: bool = False,
        **options: Any,
    ) -> None:
        self._packed = bool(packed)
        self._set_parts([open_part(source, decode, self._packed, options)])

    def _set_parts(self, parts: list[Part]) -> None:
        self._parts = parts
        self._ends = list(accumulate(map(len, parts)))
        self._reader = PackedReader()

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, number: SupportsIndex) -> Any:
        """Returns one sample. With `packed=True`, it is a uint8 tensor."""
        part, position = self._place(number)
        sample = part[position]
        return _tensor(bytearray(sample)) if self._packed else sample

    def __getitems__(self, indices: Sequence[int]) -> Any:
        """Returns the samples of one batch, in one read. `DataLoader` calls it."""
        if self._packed:
            return self._read_packed(indices)
        if len(self._parts) == 1:
            return self._parts[0].__getitems__(indices)
        return self._read_parts(indices)

    def _place(self, number: SupportsIndex) -> tuple[Part, int]:
        found = index(number)
        if not -len(self) <= found < len(self):
            raise IndexError(f"sample {found} is out of range: the dataset has {len(self)}")
        found %= len(self)
        part = bisect_right(self._ends, found)
        return self._parts[part], found - (self._ends[part - 1] if part else 0)

    def _by_part(self, indices: Sequence[int]) -> list[tuple[Part, list[int], list[int]]]:
        """Of each part that has samples of one batch: their positions in it, and their places in the batch."""
        places: dict[int, tuple[Part, list[int], list[int]]] = {}
        for place, number in enumerate(indices):
            part, position = self._place(number)
            _, positions, into = places.setdefault(id(part), (part, [], []))
            positions.append(position)
            into.append(place)
        return list(places.values())

    def _read_parts(self, indices: Sequence[int]) -> list[Any]:
        """The samples of one batch, with one read of each part."""
        samples: list[tuple[Any] | None] = [None] * len(indices)
        for part, positions, into in self._by_part(indices):
            for place, sample in zip(into, read_each(part, positions), strict=True):
                samples[place] = sample
        return [sample[0] for sample in samples if sample is not None]

    def _read_packed(self, indices: Sequence[int]) -> PackedTensors:
        parts = self._by_part(indices) if len(self._parts) > 1 else []
        if len(parts) > 1:
            return self._reader.read_parts(parts)
        records, positions = parts[0][:2] if parts else (self._parts[0], indices)
        return self._reader.read(records, positions)

    def __add__(self, other: Any) -> Dataset[T]:
        return concat([self, other]) if isinstance(other, Dataset) else NotImplemented

    def __repr__(self) -> str:
        return f"<anyrecord.torch.Dataset: {len(self)} samples of {' + '.join(map(repr, self._parts))}>"


def _tensor(data: bytearray) -> Any:
    # `frombuffer` refuses an empty buffer.
    return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def concat(datasets: Iterable[Dataset[T]]) -> Dataset[T]:
    """Joins datasets, one after the other, into one. A batch is still one read, other than with `ConcatDataset`.

    >>> import anyrecord
    >>> from anyrecord.torch import Dataset, concat
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many([b"1", b"2", b"3"])
    >>> both = concat([Dataset("doc.ffr", decode=int), Dataset("doc.ffr", decode=float)])
    >>> len(both), both.__getitems__([4, 0])
    (6, [2.0, 1])

    Datasets with other options or another `decode` are read by themselves: one read for each of them.
    """
    given = list(datasets)
    if not given:
        raise ValueError("concat got no datasets; pass at least one")
    for dataset in given:
        if not isinstance(dataset, Dataset):
            raise TypeError(f"concat takes anyrecord.torch.Dataset, not {type(dataset).__name__}")
    if len({dataset._packed for dataset in given}) > 1:
        raise ValueError("some of the datasets have packed=True and some do not; concat needs the same for all")
    parts: list[Part] = []
    for part in (part for dataset in given for part in dataset._parts):
        joined = _joined(parts[-1], part) if parts else None
        parts[-1:] = [joined] if joined is not None else [*parts[-1:], part]
    # Not by `__init__`, which would open something.
    result: Dataset[T] = Dataset.__new__(Dataset)
    result._packed = given[0]._packed
    result._set_parts(parts)
    return result


def _joined(first: Any, second: Any) -> Part | None:
    try:
        return _combine.concat([first, second])  # type: ignore[no-any-return]  # of the same kind as both
    except (TypeError, ValueError):
        return None
