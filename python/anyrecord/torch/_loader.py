"""`Loader`: batches of records, read, decoded and collated ahead of the training loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, SupportsIndex, TypeVar

from anyrecord._mapped import MappedRecords
from anyrecord._numbers import MOST_COUNT, MOST_THREADS, optional_number, whole_number
from anyrecord._records import Openable, Records
from anyrecord._records import open as open_records
from anyrecord.sampling import Pass, Tail
from anyrecord.torch._collate import Collate, check_collate, collate_function
from anyrecord.torch._making import ListMaker, PackedMaker, Plan
from anyrecord.torch._pipeline import END, NOTHING, Maker, Pipeline
from anyrecord.torch._sampler import ElasticSampler

__all__ = ["Loader", "LoaderIterator"]

T = TypeVar("T")


class Loader(Generic[T]):
    """Loads batches for a training loop. Threads read, decode and collate ahead of it; no processes are needed.

    >>> import anyrecord
    >>> from anyrecord.torch import Loader
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(10))
    >>> loader = Loader("doc.ffr", batch_size=4, decode=int, shuffle=True)
    >>> for batch in loader:
    ...     print(batch, loader.state_dict()["position"])
    [0, 5, 9, 3] 4
    [6, 4, 1, 2] 8
    [8, 7] 10
    """

    def __init__(
        self,
        records: Records | MappedRecords[Any] | Openable,
        batch_size: SupportsIndex,
        *,
        decode: Callable[[bytes], Any] | None = None,
        collate: Collate = None,
        shuffle: bool = False,
        seed: SupportsIndex = 0,
        window: SupportsIndex | None = None,
        block: SupportsIndex | None = None,
        tail: Tail = "pad",
        rank: SupportsIndex | None = None,
        world: SupportsIndex | None = None,
        drop_last: bool = False,
        threads: SupportsIndex | None = None,
        prefetch: SupportsIndex | None = None,
        pin_memory: bool = False,
    ) -> None:
        if not isinstance(records, Records | MappedRecords):
            records = open_records(records)
        if decode is not None:
            records = records.map(decode)  # checks that it is a function
        self._records, self._functions = (
            (records._records, records._functions) if isinstance(records, MappedRecords) else (records, ())
        )
        check_collate(collate, bool(self._functions))
        self.batch_size = whole_number("batch_size", batch_size, 1, MOST_COUNT)
        self.drop_last = bool(drop_last)
        self.sampler = ElasticSampler(
            self._records, seed=seed, shuffle=shuffle, tail=tail, window=window, block=block, rank=rank, world=world
        )
        self._collate = collate
        self._threads = optional_number("threads", threads, 0, MOST_THREADS)
        self._prefetch = optional_number("prefetch", prefetch, 1, MOST_COUNT)
        self._pin_memory = bool(pin_memory)

    def __len__(self) -> int:
        """How many batches the next iteration delivers: those of this rank, or the remaining ones after a resume."""
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> LoaderIterator[T]:
        taken = iter(self.sampler)
        plan = Plan(
            self.sampler._ordered(self._records, taken.share.epoch), taken.share, self.batch_size, self.drop_last
        )
        return LoaderIterator(
            Pipeline(self._maker(plan), plan.count, self._num_threads(), self._prefetch), taken, self.batch_size
        )

    def _maker(self, plan: Plan) -> Maker:
        form = self._collate
        if isinstance(form, str) and not self._functions:
            return PackedMaker(plan, form, self._pin_memory)
        return ListMaker(plan, self._functions, collate_function(form), self._pin_memory)

    def _num_threads(self) -> int:
        if self._threads is not None:
            return self._threads
        if not self._functions and not callable(self._collate):
            return 2
        return min(16, _available_cores())

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Chooses the epoch; see `ElasticSampler.set_epoch`."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """Returns the position of all ranks together, the same on every rank.

        It counts what the newest iterator has delivered, not what was read ahead. It assumes that each rank was
        delivered as many batches as this one. `ElasticSampler` and `ElasticLoader` have the same state.
        """
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues from the state in the next iteration. Ranks, threads and batch size can differ from before."""
        self.sampler.load_state_dict(state)

    def __repr__(self) -> str:
        return f"<anyrecord.torch.Loader: batches of {self.batch_size} from {self._records!r}>"


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LoaderIterator(Iterator[T], Generic[T]):
    """Iterates over the batches of a `Loader`. Its threads end with the last batch, with `close()`, or with it."""

    def __init__(self, pipeline: Pipeline, taken: Pass, batch_size: int) -> None:
        self._pipeline, self._taken, self._batch_size = pipeline, taken, batch_size

    def __next__(self) -> T:
        taken = 0
        try:
            while True:
                batch = self._pipeline.take()
                taken += self._batch_size
                if batch is not NOTHING:
                    break
        except BaseException:
            self.close()
            raise
        if batch is END:
            self._taken.ended = self._taken.ended or not self._pipeline.is_closed
            self.close()
            raise StopIteration
        self._taken.taken += taken
        return batch  # type: ignore[no-any-return]  # what the pipeline makes

    def close(self) -> None:
        """Ends the iteration and its threads. It waits for what they have begun."""
        self._pipeline.close()

    def __del__(self) -> None:
        self.close()
