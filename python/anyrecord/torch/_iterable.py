"""`IterableDataset`: samples or batches in order, divided among ranks and worker processes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, SupportsIndex, TypeVar

import torch
import torch.utils.data

from anyrecord._dataclasses import replace
from anyrecord._mapped import MappedRecords
from anyrecord._numbers import MOST_COUNT, optional_number, shown, state_numbers, whole_number
from anyrecord._records import Openable, Records
from anyrecord.sampling import Share, Tail
from anyrecord.torch._reading import PackedReader, Part, open_part, read_each
from anyrecord.torch._sampler import ElasticSampler

__all__ = ["IterableDataset"]

T = TypeVar("T")

_RECORDS_PER_READ = 64
_STATE_KEYS = ("epoch", "taken", "length", "order", "rank", "world", "worker", "workers")


class IterableDataset(torch.utils.data.IterableDataset, Generic[T]):
    """Samples in order, for PyTorch's `DataLoader`. Each rank and each worker process takes its part.

    >>> import anyrecord
    >>> from anyrecord.torch import IterableDataset
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(10))
    >>> list(IterableDataset("doc.ffr", decode=int, shuffle=True))
    [0, 5, 9, 3, 6, 4, 1, 2, 8, 7]
    >>> list(IterableDataset("doc.ffr", decode=int, shuffle=True, batch_size=4))
    [[0, 5, 9, 3], [6, 4, 1, 2], [8, 7]]

    - `source`: what `anyrecord.open` takes, with its options as keywords, or records that are open.
    - `batch_size`: deliver lists of that many samples, for a `DataLoader` with `batch_size=None`. The batches are then
      the same, in the same order, for any number of workers. `packed=True` delivers `PackedTensors` instead.
    - `shuffle`, `seed`, `window`, `block`, `tail`, `rank`, `world`: see `ElasticSampler`.

    `set_epoch` chooses the epoch of the next iterations, also in persistent workers. With `shuffle=True`, call it
    before each epoch, or all epochs have the same order: workers read ahead, so this class cannot know when the
    training loop has had all of an epoch.

    Iterators have a state, which torchdata's `StatefulDataLoader` saves. It is good for the same number of ranks and
    workers. `Loader` and `ElasticSampler` can resume with others, and they go on to the next epoch by themselves.
    """

    def __init__(
        self,
        source: Part | Openable,
        *,
        decode: Callable[[bytes], T] | None = None,
        shuffle: bool = False,
        seed: SupportsIndex = 0,
        window: SupportsIndex | None = None,
        block: SupportsIndex | None = None,
        tail: Tail = "pad",
        rank: SupportsIndex | None = None,
        world: SupportsIndex | None = None,
        batch_size: SupportsIndex | None = None,
        drop_last: bool = False,
        packed: bool = False,
        **options: Any,
    ) -> None:
        self._batch_size = optional_number("batch_size", batch_size, 1, MOST_COUNT)
        self._drop_last, self._packed = bool(drop_last), bool(packed)
        if self._batch_size is None and (packed or drop_last):
            raise ValueError("packed= and drop_last= need batch_size=")
        mapped = open_part(source, decode, self._packed, options)
        self._records: Records = mapped._records if isinstance(mapped, MappedRecords) else mapped
        self._functions = mapped._functions if isinstance(mapped, MappedRecords) else ()
        self._sampler = ElasticSampler(
            self._records, seed=seed, shuffle=shuffle, tail=tail, window=window, block=block, rank=rank, world=world
        )
        # In shared memory, so that `set_epoch` reaches the workers.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()
        # One more than the epoch that has ended, since `set_epoch` was called. -1 after the warning.
        self._ended = torch.zeros(1, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Chooses the epoch of the next iterations."""
        self._epoch[0] = whole_number("epoch", epoch, 0, MOST_COUNT)
        if self._ended[0] > 0:
            self._ended[0] = 0

    def _begin_epoch(self, epoch: int) -> None:
        if self._sampler._shuffle and self._ended[0] == epoch + 1:
            self._ended[0] = -1
            warnings.warn(
                f"this IterableDataset with shuffle=True begins epoch {epoch} again, in the same order; "
                "call set_epoch(epoch) of the dataset before each epoch",
                UserWarning,
                stacklevel=3,
            )

    def _end_epoch(self, epoch: int) -> None:
        if self._ended[0] >= 0:
            self._ended[0] = epoch + 1

    def __len__(self) -> int:
        """How many samples an epoch of this rank has, or how many batches with `batch_size=`."""
        return self._count(self._share(0))

    def _share(self, epoch: int) -> Share:
        return replace(self._sampler.share(), epoch=epoch, start=0)

    def _count(self, share: Share) -> int:
        if self._batch_size is None:
            return len(share)
        whole, rest = divmod(len(share), self._batch_size)
        return whole + (rest > 0 and not self._drop_last)

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        return _Iterator(self, int(self._epoch[0]), worker, workers)

    def __getstate__(self) -> dict[str, Any]:
        # A worker process that is not forked does not know the process group.
        sampler = self._sampler
        if sampler.rank is None:
            rank, world = sampler._rank_and_world()
            sampler = ElasticSampler.__new__(ElasticSampler)
            sampler.__dict__.update(self._sampler.__dict__, rank=rank, world=world)
        return {**self.__dict__, "_sampler": sampler}

    def __repr__(self) -> str:
        return f"<anyrecord.torch.IterableDataset: {self._records!r}>"


class _Iterator(Iterator[Any]):
    """What one worker delivers of an epoch of a rank: each `workers`-th item."""

    def __init__(self, dataset: IterableDataset[Any], epoch: int, worker: int, workers: int) -> None:
        self._dataset, self._worker, self._workers = dataset, worker, workers
        self._reader = PackedReader()
        self._begin(epoch, 0)

    def _begin(self, epoch: int, taken: int) -> None:
        dataset = self._dataset
        self._share = dataset._share(epoch)
        self._taken = taken
        self._count = len(range(self._worker, dataset._count(self._share), self._workers))
        self._ready: list[tuple[Any] | None] = []
        records = dataset._sampler._ordered(dataset._records, epoch)
        self._records: Any = MappedRecords(records, *dataset._functions) if dataset._functions else records

    def __next__(self) -> Any:
        if self._taken == 0 and self._worker == 0:  # one of the workers is enough
            self._dataset._begin_epoch(self._share.epoch)
        size = self._dataset._batch_size
        found = self._next_sample() if size is None else self._next_batch(size)
        if found is None:
            if self._worker == 0:
                self._dataset._end_epoch(self._share.epoch)
            raise StopIteration
        return found[0]

    def _next_sample(self) -> tuple[Any] | None:
        """The next sample, or None at the end."""
        while self._taken < self._count:
            if not self._ready:
                self._read()
            self._taken += 1
            sample = self._ready.pop()
            if sample is not None:  # a damaged record that is left out
                return sample
        return None

    def _read(self) -> None:
        """Reads the next samples of this worker in one go."""
        share, rest = self._share, self._count - self._taken
        # Item k of worker w is item `w + k * workers` of the rank.
        mine = replace(share, rank=share.rank + self._worker * share.world, world=share.world * self._workers)
        positions = [p for part in mine.positions(self._taken, min(_RECORDS_PER_READ, rest)) for p in part]
        self._ready = read_each(self._records, positions)
        self._ready.reverse()

    def _next_batch(self, size: int) -> tuple[Any] | None:
        while self._taken < self._count:
            begin = (self._worker + self._taken * self._workers) * size
            count = min(size, len(self._share) - begin)
            positions = [p for part in self._share.positions(begin, count) for p in part]
            batch = self._read_batch(positions)
            self._taken += 1
            if batch is not None:
                return (batch,)
        return None

    def _read_batch(self, positions: list[int]) -> Any:
        """A batch, or None if no record of it is left."""
        if not self._dataset._packed:
            return self._records.__getitems__(positions) or None
        packed = self._reader.read(self._records, positions)
        return packed if len(packed.offsets) > 1 else None

    def state_dict(self) -> dict[str, int]:
        """Returns the position of this worker."""
        numbers = (self._share.epoch, self._taken, *self._identity())
        return dict(zip(_STATE_KEYS, numbers, strict=True))

    def _identity(self) -> tuple[int, ...]:
        """What must be the same when a state is loaded."""
        share, order = self._share, self._dataset._sampler._fingerprint()
        return share.length, order, share.rank, share.world, self._worker, self._workers

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues from the state of the same worker of the same rank."""
        epoch, taken, *identity = state_numbers(state, _STATE_KEYS, "an iterable dataset")
        if tuple(identity) != self._identity():
            raise ValueError(
                "the state is from other data, or from another order, rank or worker; resume with the same, "
                "or use Loader or ElasticSampler, which resume with any number of ranks and workers"
            )
        if not 0 <= taken <= self._count:
            raise ValueError(
                f"this is not the state of an iterable dataset: {shown(taken)} is not in 0 to {self._count}"
            )
        self._begin(whole_number("epoch", epoch), taken)
