"""`ShardDataset`: records of the shards that each worker claims from a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, SupportsIndex, TypeVar

import torch.utils.data

from anyrecord._elastic import elastic
from anyrecord._elastic_vote import DONE, GOING_ON, WAITING, Vote, default_vote
from anyrecord._numbers import MOST_COUNT, optional_number
from anyrecord._records import Openable
from anyrecord._shard_queue import ShardQueue
from anyrecord.torch._reading import Part, open_part

__all__ = ["ShardDataset", "until_all_done"]

T = TypeVar("T")

_END: Any = object()


class ShardDataset(torch.utils.data.IterableDataset, Generic[T]):
    """Samples of the shards that this process claims from a queue, for PyTorch's `DataLoader`.

    >>> import anyrecord
    >>> from anyrecord.torch import ShardDataset
    >>> from torch.utils.data import DataLoader
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(8))
    >>> records = anyrecord.open("doc.ffr")
    >>> queue = anyrecord.ShardQueue(anyrecord.ShardPlan(records, shard_records=2), anyrecord.MemoryStore())
    >>> loader = DataLoader(ShardDataset(records, queue, decode=int), batch_size=4)
    >>> while queue.wait():                        # until all shards are done, by whomever
    ...     for batch in loader:
    ...         print(batch)
    tensor([0, 1, 2, 3])
    tensor([4, 5, 6, 7])

    Each worker process of each rank claims shards for itself; ranks and workers need no numbers, and can come and go.
    An iteration ends when there is nothing to claim. It does not wait for shards that others hold: the loader takes
    batches from its workers in turn, and a worker that waits would stop the others. So repeat it `while queue.wait()`.
    Ranks that train in step use `until_all_done`.

    A shard is complete when the loader has asked for the sample after its last one. That is before you have it: a
    loader reads ahead. If samples must be processed before their shard is complete, use `anyrecord.elastic`.

    - `source`: the records of the plan, or what `anyrecord.open` takes, with its options as keywords.
    - `queue`: a `ShardQueue`, or a function that makes one. The function is called in each worker process, so a store
      that cannot be forked or pickled can be connected there.
    - `batch_size`: deliver lists of up to that many samples, for a `DataLoader` with `batch_size=None`.
    """

    def __init__(
        self,
        source: Part | Openable,
        queue: ShardQueue | Callable[[], ShardQueue],
        *,
        decode: Callable[[bytes], T] | None = None,
        batch_size: SupportsIndex | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(queue, ShardQueue) and not callable(queue):
            raise TypeError(f"queue must be a ShardQueue or a function that makes one, not {type(queue).__name__}")
        self._part = open_part(source, decode, False, options)
        self._queue = queue
        self._batch_size = optional_number("batch_size", batch_size, 1, MOST_COUNT)

    def __iter__(self) -> Iterator[Any]:
        queue = self._queue if isinstance(self._queue, ShardQueue) else self._queue()
        return elastic(self._part, queue, until="idle", batch_size=self._batch_size)

    def __repr__(self) -> str:
        return f"<anyrecord.torch.ShardDataset: {self._part!r}>"


def until_all_done(loader: Iterable[T], queue: ShardQueue, *, vote: Vote | None = None) -> Iterator[T | None]:
    """Iterates over a loader of a `ShardDataset` until all shards are done. All ranks end at the same step.

    >>> import anyrecord
    >>> from anyrecord.torch import ShardDataset, until_all_done
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(8))
    >>> records = anyrecord.open("doc.ffr")
    >>> queue = anyrecord.ShardQueue(anyrecord.ShardPlan(records, shard_records=2), anyrecord.MemoryStore())
    >>> for batch in until_all_done(ShardDataset(records, queue, decode=int, batch_size=3), queue):
    ...     print(batch)                           # None on a rank that has no batch while other ranks have one
    [0, 1, 2]
    [3, 4, 5]
    [6, 7]

    `vote` is as for `anyrecord.elastic`.
    """
    decide = vote or default_vote()
    batches: Iterator[T] = iter(())
    while True:
        batch: Any = next(batches, _END)
        claimable: bool | None = None
        if batch is _END:
            claimable = queue._is_anything_claimable()
            if claimable:
                batches = iter(loader)
                batch = next(batches, _END)
        # None: there is nothing to claim, and there never will be.
        most = decide(GOING_ON if batch is not _END else DONE if claimable is None else WAITING)
        if most == DONE:
            return
        if most == GOING_ON:
            yield None if batch is _END else batch
        else:
            queue._pause()
