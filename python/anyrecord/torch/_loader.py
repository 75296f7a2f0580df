"""`Loader`: batches of records, read, decoded and collated ahead of the training loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.context import BaseContext
from typing import Any, Generic, SupportsIndex, TypeVar

from anyrecord._dataclasses import replace
from anyrecord._mapped import MappedRecords
from anyrecord._numbers import MOST_COUNT, MOST_THREADS, optional_number, whole_number
from anyrecord._records import Openable, Records
from anyrecord._records import open as open_records
from anyrecord.sampling import Share, Tail
from anyrecord.torch._collate import Collate, check_collate, collate_function, jagged, pinned
from anyrecord.torch._device import CopyStream, Cuda, DeviceMaker, can_pin, checked_device
from anyrecord.torch._making import ListMaker, PackedMaker, Plan
from anyrecord.torch._pipeline import END, NOTHING, Maker, Pipeline
from anyrecord.torch._processes import ProcessMaker, check_picklable, start_context
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
        processes: SupportsIndex = 0,
        context: str | BaseContext | None = None,
        prefetch: SupportsIndex | None = None,
        pin_memory: bool = False,
        device: Any = None,
    ) -> None:
        source: Records | MappedRecords[Any] = (
            records if isinstance(records, Records | MappedRecords) else open_records(records)
        )
        if decode is not None:
            source = source.map(decode)  # checks that it is a function
        self._functions: tuple[Callable[[Any], Any], ...] = ()
        if isinstance(source, MappedRecords):
            self._functions = source._functions
        self._records: Records = source._records if isinstance(source, MappedRecords) else source
        check_collate(collate, bool(self._functions))
        self.batch_size = whole_number("batch_size", batch_size, 1, MOST_COUNT)
        self.drop_last = bool(drop_last)
        self.sampler = ElasticSampler(
            self._records, seed=seed, shuffle=shuffle, tail=tail, window=window, block=block, rank=rank, world=world
        )
        self._collate = collate
        self._threads = optional_number("threads", threads, 0, MOST_THREADS)
        self._prefetch = optional_number("prefetch", prefetch, 1, MOST_COUNT)
        self._processes = whole_number("processes", processes, 0, MOST_THREADS)
        self._context = self._checked_context(context)
        self._device = checked_device(device)
        self._pin_memory = can_pin(pin_memory)

    def _checked_context(self, context: str | BaseContext | None) -> BaseContext | None:
        if not self._processes:
            if context is not None:
                raise ValueError("context= needs processes=")
            return None
        if self._threads is not None:
            raise ValueError(
                "threads= and processes= exclude each other; each process has one thread that reads for it"
            )
        if not self._functions and not callable(self._collate):
            raise ValueError(
                "processes= needs decode= or a collate= function; without them there is nothing to do in processes"
            )
        found = start_context(context)
        if found.get_start_method() != "fork":
            check_picklable((self._functions, self._collate))
        return found

    def __len__(self) -> int:
        """How many batches a whole epoch of this rank has. The first iteration after a resume has the remaining ones.

        It does not change with a resume, because schedulers and trainers compute the number of steps from it.
        """
        whole, rest = divmod(len(replace(self.sampler.share(), start=0)), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> LoaderIterator[T]:
        return LoaderIterator(self)

    def _begin(self, share: Share) -> Pipeline:
        """Starts to load the batches of a share."""
        records = self.sampler._ordered(self._records, share.epoch)
        plan = Plan(records, share, self.batch_size, self.drop_last)
        threads = self._num_threads()
        copies = None if self._device is None else CopyStream(Cuda(self._device))
        maker = self._maker(plan, threads, copies)
        announce = plan.announce if records._is_remote else None
        return Pipeline(maker, plan.count, threads, self._prefetch, announce, self._delivery(copies))

    def _maker(self, plan: Plan, threads: int, copies: CopyStream | None) -> Maker:
        form = self._collate
        place = copies.copy if copies is not None else pinned if self._pin_memory else None
        if self._context is not None:
            collate = collate_function(form)
            return ProcessMaker(plan, self._functions, collate, place, self._context, threads)
        if isinstance(form, str) and not self._functions:
            return PackedMaker(plan, form, place) if copies is None else DeviceMaker(plan, form, copies.cuda, threads)
        return ListMaker(plan, self._functions, collate_function(form), place)

    def _delivery(self, copies: CopyStream | None) -> Callable[[Any], Any] | None:
        """What happens to a batch in the consumer's thread."""
        if self._collate != "jagged":
            return None if copies is None else copies.deliver
        return jagged if copies is None else lambda copied: jagged(copies.deliver(copied))

    def _num_threads(self) -> int:
        if self._processes:
            return min(self._processes, self._prefetch or self._processes)
        if self._threads is not None:
            # Copies to a device need a thread with a stream of its own.
            return self._threads if self._device is None else max(1, self._threads)
        if not self._functions and not callable(self._collate):
            return 2 if self._device is None else min(4, _available_cores())
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
    """Iterates over the batches of a `Loader`. Reading begins with the first `next()`.

    The threads end with the last batch, with an error, with `close()`, and when nothing refers to the iterator anymore.
    """

    def __init__(self, loader: Loader[T]) -> None:
        self._pipeline: Pipeline | None = None
        self._loader = loader
        self._taken = iter(loader.sampler)

    def __next__(self) -> T:
        pipeline = self._pipeline or self._begin()
        taken = 0
        try:
            batch = NOTHING
            while batch is NOTHING:
                batch = pipeline.take()
                taken += self._loader.batch_size
        except BaseException:
            pipeline.close()
            raise
        if batch is END:
            self._taken.ended = self._taken.ended or not pipeline.is_closed
            pipeline.close()
            raise StopIteration
        self._taken.taken += taken
        return batch  # type: ignore[no-any-return]  # what the pipeline makes

    def _begin(self) -> Pipeline:
        # Trainers make the iterator first and then choose the epoch.
        if self._loader.sampler._pass is None:
            self._taken = iter(self._loader.sampler)
        self._pipeline = self._loader._begin(self._taken.share)
        return self._pipeline

    def close(self) -> None:
        """Ends the iteration and its threads and processes. It waits for what threads have begun."""
        if self._pipeline is None:
            self._pipeline = Pipeline(Maker(), 0, 0)
        self._pipeline.close()

    def __del__(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
