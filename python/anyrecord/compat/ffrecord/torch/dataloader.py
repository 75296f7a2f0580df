"""`DataLoader`: PyTorch's `DataLoader` that can also start an epoch at a later step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch.utils.data

from anyrecord.compat.ffrecord.torch.dataset import Dataset

__all__ = ["DataLoader"]


class DataLoader(torch.utils.data.DataLoader):
    """PyTorch's `DataLoader` with `set_step`, and with the positional arguments of ffrecord.

    Pass other arguments of PyTorch's loader (`multiprocessing_context`, `in_order` and so on) by keyword.

    A `Dataset` of this package gets the indices of a whole batch in one call: PyTorch does that for data sets with
    `__getitems__`. Skipped steps read no data, because their indices are skipped.

    >>> from anyrecord.compat.ffrecord import FileWriter
    >>> from anyrecord.compat.ffrecord.torch import DataLoader, Dataset
    >>> with FileWriter("doc.ffr", 6) as writer:
    ...     for number in range(6):
    ...         writer.write_one(bytes([number]))
    >>> class Numbers(Dataset):
    ...     def process(self, indices, data):
    ...         return [int(sample[0]) for sample in data]
    >>> loader = DataLoader(Numbers("doc.ffr"), batch_size=2)
    >>> [batch.tolist() for batch in loader]
    [[0, 1], [2, 3], [4, 5]]
    >>> loader.set_step(2)
    >>> len(loader), [batch.tolist() for batch in loader]
    (1, [[4, 5]])
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        generator: Any = None,  # in PyTorch, multiprocessing_context has this position
        *,
        prefetch_factor: int | None = 2,
        persistent_workers: bool = False,
        skippable: bool = True,
        **options: Any,
    ) -> None:
        if skippable and batch_size is None and batch_sampler is None:
            raise AssertionError("batch_size=None needs skippable=False")
        self.skippable = skippable
        self._position = _Position()
        super().__init__(
            dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            generator=generator,
            prefetch_factor=prefetch_factor if num_workers else None,  # without workers PyTorch accepts only None
            persistent_workers=persistent_workers,
            **options,
        )

    def set_step(self, step: int) -> None:
        """Skips the first `step` batches of every epoch that starts after this call, until you set it to 0 again."""
        if not self.skippable or isinstance(self.dataset, torch.utils.data.IterableDataset):
            raise AssertionError("This dataloader is not skippable")
        batches = len(super()._index_sampler)
        if not (0 <= step < batches or step == 0):
            raise AssertionError(f"the step must be at least 0 and less than {batches}, not {step}")
        self._position.step = step

    @property
    def _index_sampler(self) -> Any:
        """The sampler that PyTorch's iterators take indices and the length of an epoch from."""
        indices = super()._index_sampler
        if isinstance(self.dataset, torch.utils.data.IterableDataset):
            return indices
        return _Steps(indices, self._position, isinstance(self.dataset, Dataset) and not self._auto_collation)


class _Position:
    """The step to start at. Iterators of persistent workers live longer than an epoch and read it at the next one."""

    step = 0


class _Steps:
    """Batches of indices, beginning at the current step."""

    def __init__(self, indices: Any, position: _Position, alone: bool) -> None:
        self.indices, self.position, self.alone = indices, position, alone

    def __len__(self) -> int:
        return len(self.indices) - self.position.step

    def __iter__(self) -> Iterator[Any]:
        steps = islice(self.indices, self.position.step, None)
        # Without batching, a data set of this package still gets a list of indices.
        return ([index] for index in steps) if self.alone else steps
