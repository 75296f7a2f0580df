"""`elastic`: the loop of a worker. Claims shards, reads their records, renews the leases, and completes the shards."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Generic, Literal, Self, SupportsIndex, TypeVar, get_args, overload

from anyrecord._elastic_leases import KeptLeases
from anyrecord._elastic_progress import Progress
from anyrecord._elastic_vote import DONE, GOING_ON, WAITING, Vote, default_vote
from anyrecord._mapped import MappedRecords
from anyrecord._numbers import MOST_COUNT, optional_number
from anyrecord._records import Records
from anyrecord._shard_lease import Lease
from anyrecord._shard_queue import ShardQueue

__all__ = ["ElasticRecords", "Until", "elastic"]

T = TypeVar("T")
Until = Literal["done", "idle", "all_done"]

_NOTHING: Any = object()
"""There is no record now: other workers hold all shards that are left."""
_OVER: Any = object()
"""All shards are done."""
_END: Any = object()


@overload
def elastic(
    records: Records,
    queue: ShardQueue,
    *,
    until: Literal["done", "idle"] = "done",
    batch_size: None = None,
    vote: Vote | None = None,
    progress: bool = False,
) -> ElasticRecords[bytes]: ...
@overload
def elastic(
    records: MappedRecords[T],
    queue: ShardQueue,
    *,
    until: Literal["done", "idle"] = "done",
    batch_size: None = None,
    vote: Vote | None = None,
    progress: bool = False,
) -> ElasticRecords[T]: ...
@overload
def elastic(
    records: Records | MappedRecords[Any],
    queue: ShardQueue,
    *,
    until: Until = "done",
    batch_size: SupportsIndex | None = None,
    vote: Vote | None = None,
    progress: bool = False,
) -> ElasticRecords[Any]: ...
def elastic(
    records: Records | MappedRecords[Any],
    queue: ShardQueue,
    *,
    until: Until = "done",
    batch_size: SupportsIndex | None = None,
    vote: Vote | None = None,
    progress: bool = False,
) -> ElasticRecords[Any]:
    """Iterates over the records of all shards that this worker gets. The other workers get the other shards.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(100))
    >>> records = anyrecord.open("doc.ffr")
    >>> queue = anyrecord.ShardQueue(anyrecord.ShardPlan(records, seed=0, shard_records=10), anyrecord.MemoryStore())
    >>> sum(int(record) for record in anyrecord.elastic(records, queue))
    4950
    >>> print(queue.status())
    10 of 10 shards done (100 %)

    It claims a shard, reads ahead, renews the lease in a thread, and completes the shard when you ask for the record
    after its last one: then you have processed them all. If you leave the loop earlier, for instance by an exception,
    the shard is given back. Its records come again, to this worker or to another one. If another worker has taken the
    shard, because this one was stopped for longer than the lease, the rest of the shard is left out.

    - `records`: the records that the plan is about, or what `records.map(...)` returned.
    - `until`: when the loop ends.
      `"done"`: when all shards are done. While other workers hold the last ones, it waits: one of them may die.
      `"idle"`: as soon as there is nothing to claim. For loaders, which must not wait; see `ShardQueue.wait`.
      `"all_done"`: for ranks that train in step. All ranks end at the same step. A rank that has no record in a step
      gets `None`: let it take part in the step with a batch of weight zero.
    - `batch_size`: deliver lists of up to that many records. A list may have records of several shards.
    - `vote`: how ranks agree, with `until="all_done"`: a function that gets a number of this rank and returns the
      largest of all ranks. The default is an `all_reduce` of `torch.distributed`, if it is initialised.
    - `progress`: print the status of the queue to stderr every two seconds. One worker is enough: each line asks the
      store up to 64 times.

    Use the iterator in the thread and process that made it, and only one for each queue in a thread: one that waits for
    the shard of the other waits for ever.
    """
    if until not in get_args(Until):
        raise ValueError(f"until={until!r} is not valid: it must be 'done', 'idle' or 'all_done'")
    if vote is not None and until != "all_done":
        raise ValueError("vote= needs until='all_done'")
    if not isinstance(records, Records | MappedRecords):
        raise TypeError(f"elastic takes records from anyrecord.open, not {type(records).__name__}")
    if not isinstance(queue, ShardQueue):
        raise TypeError(f"elastic takes a ShardQueue, not {type(queue).__name__}")
    if len(records) != queue.plan.num_records:
        raise ValueError(
            f"the plan is about other records: it has {queue.plan.num_records}, and these are {len(records)}; "
            "pass the same records to ShardPlan and to elastic"
        )
    size = optional_number("batch_size", batch_size, 1, MOST_COUNT)
    return ElasticRecords(records, queue, until, size, vote, bool(progress))


class ElasticRecords(Iterator[T], Generic[T]):
    """The iterator that `elastic` returns. `close`, or the end of a `with` block, gives the current shard back."""

    def __init__(
        self,
        records: Records | MappedRecords[Any],
        queue: ShardQueue,
        until: Until = "done",
        batch_size: int | None = None,
        vote: Vote | None = None,
        progress: bool = False,
    ) -> None:
        self._records, self._queue, self._until, self._size = records, queue, until, batch_size
        self._vote = vote or (default_vote() if until == "all_done" else None)
        self._kept = KeptLeases(queue)
        self._finalizer = weakref.finalize(self, self._kept.stop)
        self._current: _Opened | None = None
        self._ahead: _Ahead | None = None
        self._ended: list[Lease] = []
        """Shards whose last record was delivered in the last batch, or is in the one that is being made."""
        self._batch: list[Any] = []
        self._is_over = False
        self._is_quick = self._vote is None and batch_size is None and isinstance(records, Records)
        self._idle_since = float("-inf")
        self._completed = self._lost = 0
        self._end_of_progress = weakref.finalize(self, Progress(queue).stop) if progress else None

    @property
    def lease(self) -> Lease | None:
        """The lease of the shard that the last record is from. None before the first record and after the last."""
        return None if self._current is None else self._current.lease

    @property
    def completed(self) -> int:
        """How many shards this loop has completed."""
        return self._completed

    @property
    def lost(self) -> int:
        """How many shards another worker has taken from this loop."""
        return self._lost

    def __next__(self) -> T:
        if self._kept.is_of_another_process:
            raise RuntimeError("this iterator belongs to the process that made it; call anyrecord.elastic in each one")
        # Most records are taken here. In between, the loop looks after its shards.
        opened = self._current
        if opened is not None and opened.quick > 0 and self._is_quick and not opened.lease._is_lost:
            opened.quick -= 1
            record = next(opened.records, _END)
            if record is not _END:
                return record  # type: ignore[return-value]
        if self._is_over:
            raise StopIteration
        found = self._next_in_step() if self._vote is not None else self._next(is_patient=self._until == "done")
        if found is _NOTHING or found is _OVER:
            self.close()
            raise StopIteration
        return found  # type: ignore[no-any-return]

    def _next_in_step(self) -> Any:
        """The next record of this rank, or None if only other ranks have one."""
        assert self._vote is not None
        while True:
            found = self._next(is_patient=False)
            ours = DONE if found is _OVER else WAITING if found is _NOTHING else GOING_ON
            most = self._vote(ours)
            if most == GOING_ON:
                return None if ours != GOING_ON else found
            if most == DONE:
                return _OVER
            self._queue._pause()

    def _next(self, is_patient: bool) -> Any:
        """The next record or batch."""
        batch = self._batch  # empty, unless an error came while it was being made
        if not batch:
            self._complete_ended()
        if self._size is None:
            return self._next_record(is_patient, 0)
        while len(batch) < self._size:
            # With records in hand, it does not wait: other workers may wait for the shards that these are from.
            record = self._next_record(is_patient and not batch, len(batch))
            if record is _NOTHING or record is _OVER:
                if not batch:
                    return record
                break
            batch.append(record)
            self._take_quick(batch, self._size - len(batch))
        self._batch = []
        return batch

    def _take_quick(self, batch: list[Any], most: int) -> None:
        """Takes the next records of the current shard, up to where the loop must look after its shards."""
        opened = self._current
        if opened is not None and isinstance(self._records, Records):
            most = min(most, opened.quick)
            opened.quick -= most
            for record in islice(opened.records, most):  # after an error, those before it are in the batch
                batch.append(record)

    def _next_record(self, is_patient: bool, in_hand: int) -> Any:
        while True:
            if self._current is None and (stopped := self._claim(is_patient)) is not None:
                return stopped
            opened = self._current
            assert opened is not None
            if self._kept.error is not None:
                raise self._kept.error
            if opened.lease._is_lost:
                self._lost += 1
                self._current = None
                continue
            record = opened.take()
            if record is not _END:
                if self._ahead is None and opened.is_nearly_over():
                    self._ahead = _Ahead(self._kept, self._records)
                return record
            # You have asked for a record after the last one of this shard.
            self._current = None
            self._ended.append(opened.lease)
            if not in_hand:
                self._complete_ended()

    def _complete_ended(self) -> None:
        while self._ended:
            is_ours = self._kept.complete(self._ended[0])
            del self._ended[0]
            self._completed += is_ours
            self._lost += not is_ours

    def _claim(self, is_patient: bool) -> Any:
        """Begins with the next shard. Returns `_NOTHING` or `_OVER` if there is none."""
        is_soon = time.monotonic() - self._idle_since < self._queue._poll_seconds()
        if self._vote is not None and self._ahead is None and is_soon:
            return _NOTHING  # a rank without records does not ask the store in every step of the others
        while True:
            ahead, self._ahead = self._ahead, None
            self._current = _open(self._kept, self._records) if ahead is None else ahead.result()
            if self._current is not None:
                return None
            if ahead is not None:
                continue  # there was nothing to claim then
            if self._queue._is_over():
                return _OVER
            if not is_patient:
                self._idle_since = time.monotonic()
                return _NOTHING
            self._queue._pause()

    def close(self) -> None:
        """Ends the loop: gives back the shard whose records were not all delivered, and ends the thread."""
        self._is_over, self._current, self._ahead, self._ended = True, None, None, []
        self._finalizer()
        if self._end_of_progress is not None:
            self._end_of_progress()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<anyrecord.ElasticRecords: {self._queue!r}>"


class _Opened:
    """A shard that is being read. Its first record is read already, so that more is on its way."""

    def __init__(self, lease: Lease, records: Records | MappedRecords[Any]) -> None:
        self.lease = lease
        self._mapped = records if isinstance(records, MappedRecords) else None
        raw = records._records if isinstance(records, MappedRecords) else records
        self.records = iter(raw[lease.shard.slice])
        self.quick = 0
        """How many records can be taken from `records` before `is_nearly_over` must be asked again."""
        self._mark = -(-3 * len(lease.shard) // 4)
        self._error: Exception | None = None
        self._first: Any = _NOTHING
        try:
            self._first = next(self.records, _END)
        except Exception as error:  # it is raised when its turn comes
            self._error = error

    def take(self) -> Any:
        """The next record, or `_END`."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        record, self._first = self._first, _NOTHING
        if record is _NOTHING:
            record = next(self.records, _END)
        if record is _END:
            self._first = _END
            return _END
        # The function runs in the caller's thread.
        if self._mapped is None:
            return record
        return self._mapped._apply(record, self.lease.shard.start + self.records._position - 1)

    def is_nearly_over(self) -> bool:
        """Whether it is time to claim the next shard. Not earlier, so that no worker holds one while others wait."""
        position = self.records._position
        is_time = position >= self._mark
        self.quick = (len(self.lease.shard) if is_time else self._mark) - position
        return is_time


def _open(kept: KeptLeases, records: Records | MappedRecords[Any]) -> _Opened | None:
    lease = kept.claim()
    return None if lease is None else _Opened(lease, records)


class _Ahead:
    """Claims the next shard and reads its first records in a thread."""

    def __init__(self, kept: KeptLeases, records: Records | MappedRecords[Any]) -> None:
        self._is_there = threading.Event()
        self._opened: _Opened | None = None
        self._error: Exception | None = None
        kept.in_a_thread(_work_of(self, kept, records))

    def result(self) -> _Opened | None:
        """The shard, or None if there was nothing to claim."""
        self._is_there.wait()
        if self._error is not None:
            raise self._error
        return self._opened


def _work_of(ahead: _Ahead, kept: KeptLeases, records: Records | MappedRecords[Any]) -> Callable[[], None]:
    def work() -> None:
        try:
            ahead._opened = _open(kept, records)
        except Exception as error:
            ahead._error = error
        finally:
            ahead._is_there.set()

    return work
