"""`Loader`: batches of records, read, decoded and collated ahead of the training loop."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.context import BaseContext
from typing import Any, Generic, Literal, SupportsIndex, TypedDict, TypeVar, Unpack, overload

import torch.utils.data

from anyrecord._dataclasses import replace
from anyrecord._mapped import MappedRecords
from anyrecord._numbers import MOST_COUNT, MOST_THREADS, optional_number, whole_number
from anyrecord._records import Openable, Records
from anyrecord._records import open as open_records
from anyrecord.sampling import Share, Tail
from anyrecord.torch._collate import Collate, check_collate, collate_function, jagged, pinned
from anyrecord.torch._device import CopyStream, Cuda, DeviceMaker, can_pin, checked_device
from anyrecord.torch._making import ListMaker, PackedMaker, Plan
from anyrecord.torch._packed import PackedTensors
from anyrecord.torch._pipeline import END, NOTHING, Maker, Pipeline
from anyrecord.torch._processes import ProcessMaker, check_picklable, start_context
from anyrecord.torch._reading import checked_decode
from anyrecord.torch._sampler import ElasticSampler

__all__ = ["Loader", "LoaderIterator"]

T = TypeVar("T")
U = TypeVar("U")

_SMALL_RECORD = 32_000
"""Bytes. For a GPU, more threads read smaller records: finding a record takes as long as reading some kilobytes."""


class _Options(TypedDict, total=False):
    """The keywords that have no influence on the type of a batch."""

    shuffle: bool
    seed: SupportsIndex
    window: SupportsIndex | None
    block: SupportsIndex | None
    tail: Tail
    rank: SupportsIndex | None
    world: SupportsIndex | None
    drop_last: bool
    threads: SupportsIndex | None
    processes: SupportsIndex
    context: str | BaseContext | None
    prefetch: SupportsIndex | None
    pin_memory: bool
    device: Any


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

    Two ranks with another batch size continue where one rank stopped:

    >>> batches = iter(loader)                                         # the next epoch
    >>> next(batches)
    [5, 3, 8, 6]
    >>> state = loader.state_dict()
    >>> for rank in range(2):
    ...     resumed = Loader("doc.ffr", 2, decode=int, shuffle=True, rank=rank, world=2)
    ...     resumed.load_state_dict(state)
    ...     print(list(resumed))
    [[7, 1], [4]]
    [[9, 2], [0]]

    - `records`: `Records`, `MappedRecords`, or anything that `anyrecord.open` takes.
    - `decode`: a function that makes a sample of the bytes of a record, as for `Records.map`.
    - `collate`: what a batch is. None: a list of samples. `"tensors"`: what PyTorch's `default_collate` makes of it;
      without `decode`, records of equal size are one uint8 tensor. `"packed"`: `PackedTensors` of records that are not
      decoded. `"jagged"`: a nested tensor with jagged layout, of records or of decoded tensors with different lengths.
      A function gets the list of samples and returns the batch.
    - `shuffle=True`: a new order in each epoch, which `seed` and the epoch decide. `seed`, `window`, `block`, `tail`,
      `rank` and `world` mean the same as for `ElasticSampler`, and the order is the same.
    - `drop_last=True`: leave out the last batch if it has fewer records than others.
    - `threads`: how many threads load batches. The default is 2 if there is nothing to decode (4 for small records to a
      GPU), else one for each core, at most 16. With 0, the thread of the training loop loads them, which helps to debug
      `decode`.
    - `processes`: that many processes decode and collate, for a `decode` that holds the interpreter's lock. Threads
      read records into memory that the processes share. `context` is the start method, `"forkserver"` by default.
    - `prefetch`: how many batches are loaded ahead. By default, up to two for each thread, as long as they take less
      than 256 MiB; at least two.
    - `pin_memory=True`: tensors are in pinned memory.
    - `device="cuda"`: tensors are on the GPU. The copies run on a stream of their own, beside reading and training.
      Small batches of records that are not decoded are copied together.

    The state is that of `ElasticSampler` and `ElasticLoader`: each can load what another one has saved. An exception in
    `decode` is raised in the training loop, with a note that names the file and the record.

    A loop that ends early ends the threads and processes, and so does `close()` of the iterator.
    """

    @overload
    def __init__(
        self: Loader[list[bytes]],
        records: Records | Openable,
        batch_size: SupportsIndex,
        *,
        decode: None = None,
        collate: None = None,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[list[U]],
        records: MappedRecords[U],
        batch_size: SupportsIndex,
        *,
        decode: None = None,
        collate: None = None,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[list[U]],
        records: Records | MappedRecords[Any] | Openable,
        batch_size: SupportsIndex,
        *,
        decode: Callable[[Any], U],
        collate: None = None,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[PackedTensors],
        records: Records | Openable,
        batch_size: SupportsIndex,
        *,
        decode: None = None,
        collate: Literal["packed"],
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Loader[Any],
        records: Records | MappedRecords[Any] | Openable,
        batch_size: SupportsIndex,
        *,
        decode: Callable[[Any], Any] | None = None,
        collate: Literal["tensors", "jagged"],
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self,
        records: Records | MappedRecords[Any] | Openable,
        batch_size: SupportsIndex,
        *,
        decode: Callable[[Any], Any] | None = None,
        collate: Callable[[list[Any]], T],
        **options: Unpack[_Options],
    ) -> None: ...
    def __init__(
        self,
        records: Records | MappedRecords[Any] | Openable,
        batch_size: SupportsIndex,
        *,
        decode: Callable[[Any], Any] | None = None,
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
        if isinstance(records, torch.utils.data.Dataset):
            raise TypeError(
                f"Loader takes records or a path, not a dataset ({type(records).__name__}); "
                "pass it the path, and decode= if there is one"
            )
        source: Records | MappedRecords[Any] = (
            records if isinstance(records, Records | MappedRecords) else open_records(records)
        )
        if decode is not None:
            source = source.map(checked_decode(decode))
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
        self._copies: CopyStream | None = None
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
        if self._copies is None and self._device is not None:
            self._copies = CopyStream(Cuda(self._device))
        maker = self._maker(plan, threads, self._copies)
        announce = plan.announce if records._is_remote else None
        return Pipeline(maker, plan.count, threads, self._prefetch, announce, self._delivery(self._copies))

    def _maker(self, plan: Plan, threads: int, copies: CopyStream | None) -> Maker:
        form = self._collate
        place = copies.copy if copies is not None else pinned if self._pin_memory else None
        if self._context is not None:
            collate = collate_function(form)
            return ProcessMaker(plan, self._functions, collate, place, self._context, threads)
        if isinstance(form, str) and not self._functions:
            return PackedMaker(plan, form, place) if copies is None else DeviceMaker(plan, form, copies, threads)
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
            is_small = self._device is not None and self._records._mean_bytes() < _SMALL_RECORD
            return min(4 if is_small else 2, max(2, _available_cores()))
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

    def __getstate__(self) -> dict[str, Any]:
        # Pinned memory and the stream belong to this process.
        return {**self.__dict__, "_copies": None}

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
        self._lock = threading.Lock()

    def __next__(self) -> T:
        pipeline = self._pipeline or self._begin()
        taken = 0
        try:
            batch: Any = NOTHING
            while batch is NOTHING:
                batch = pipeline.take()
                taken += self._loader.batch_size
        except BaseException:
            pipeline.close()
            raise
        if batch is END:
            if not pipeline.is_closed:
                self._taken.ended = True
            pipeline.close()
            raise StopIteration
        with self._lock:
            self._taken.taken += taken
        return batch  # type: ignore[no-any-return]  # what the pipeline makes

    def _begin(self) -> Pipeline:
        with self._lock:  # several threads may take batches
            if self._pipeline is None:
                # Trainers make the iterator first and then choose the epoch.
                if self._loader.sampler._pass is None:
                    self._taken = iter(self._loader.sampler)
                if self._loader.drop_last:
                    self._taken.leave_out_rest(self._loader.batch_size)
                self._pipeline = self._loader._begin(self._taken.share)
            return self._pipeline

    def close(self) -> None:
        """Ends the iteration and its threads and processes. It waits for what threads have begun."""
        if self._pipeline is None:
            with self._lock:
                self._pipeline = self._pipeline or Pipeline(Maker(), 0, 0)
        self._pipeline.close()

    def __del__(self) -> None:
        if self._pipeline is not None:
            self._pipeline.abandon()
