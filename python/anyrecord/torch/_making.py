"""How one batch is made: which records it has, and how they are read, decoded and collated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeAlias

from anyrecord._calls import add_note, stop_iteration_error
from anyrecord._mapped import MappedRecords
from anyrecord._records import Records
from anyrecord.sampling import Share
from anyrecord.torch._collate import Form, check_equal_sizes
from anyrecord.torch._intraop import IntraopThreads
from anyrecord.torch._packed import PackedTensors
from anyrecord.torch._pipeline import NOTHING, Maker, Tasks

__all__ = ["ListMaker", "PackedMaker", "Place", "Plan", "collated"]

Place: TypeAlias = Callable[[Any], Any]
"""Moves a batch to where it is wanted: pinned memory, or a device."""


class Plan:
    """The records of each batch of a share."""

    def __init__(self, records: Records, share: Share, batch_size: int, drop_last: bool) -> None:
        self.records = records
        """All records, in the order of the epoch."""
        self.batch_size = batch_size
        self._share, self._size = share, len(share)
        whole, rest = divmod(self._size, batch_size)
        self.count = whole + (rest > 0 and not drop_last)
        self.most_records = min(batch_size, self._size)
        """How many records the largest batch has."""
        self._ahead: Any = None
        if records._is_remote and self._size:
            self._ahead = records[share.start + share.rank :: share.world]._read_ahead(0)

    def positions(self, number: int, batches: int = 1) -> Sequence[int]:
        """The positions of the records of one batch, or of several, in the order of the epoch."""
        begin = number * self.batch_size
        count = min(batches * self.batch_size, self._size - begin)
        taken, *padding = self._share.positions(begin, count)
        return list(chain(taken, *padding)) if padding else taken

    def announce(self, number: int) -> None:
        """Lets servers send the records of this batch and of the next ones."""
        if self._ahead is not None:
            self._ahead.go_on(number * self.batch_size)

    def describe(self, number: int) -> str:
        """A batch as error messages name it."""
        return f"the batch that begins with {self.records._describe(self.positions(number)[0])}"


class ListMaker(Maker):
    """Makes lists of samples, or what a function makes of such a list."""

    def __init__(
        self,
        plan: Plan,
        functions: Sequence[Callable[[Any], Any]],
        collate: Callable[[list[Any]], Any] | None,
        place: Place | None,
    ) -> None:
        self._plan, self._collate, self._place = plan, collate, place
        self.can_split = bool(functions)
        source: Any = MappedRecords(plan.records, *functions) if functions else plan.records
        self._read: Callable[[Sequence[int]], list[Any]] = source.__getitems__
        self._intraop = IntraopThreads() if functions or collate is not None else None

    def start(self, count: int, start: Callable[[], None]) -> None:
        if self._intraop is None:
            start()
        else:
            self._intraop.start(count, start)

    def run(self, tasks: Tasks, lock: threading.Lock, index: int) -> None:
        if self._intraop is not None:
            self._intraop.enter()
        super().run(tasks, lock, index)

    def make(self, number: int, piece: int, of: int) -> list[Any]:
        positions = self._plan.positions(number)
        if of > 1:
            size = len(positions)
            positions = positions[size * piece // of : size * (piece + 1) // of]
        return self._read(positions)

    def finish(self, number: int, pieces: list[list[Any]]) -> Any:
        samples = pieces[0] if len(pieces) == 1 else list(chain.from_iterable(pieces))
        if not samples:
            return NOTHING
        batch = samples if self._collate is None else collated(self._collate, samples, self._plan, number)
        return batch if self._place is None else self._place(batch)


class PackedMaker(Maker):
    """Makes tensors of records that are not decoded."""

    def __init__(self, plan: Plan, form: Form, place: Place | None) -> None:
        self._plan, self._form, self._place = plan, form, place

    def make(self, number: int, piece: int, of: int) -> Any:
        packed = self._plan.records.read_packed(self._plan.positions(number))
        if not packed.num_records:
            return NOTHING
        batch: Any = PackedTensors._of(packed)
        if self._form == "tensors":
            size = collated(check_equal_sizes, packed.offsets, self._plan, number)
            batch = batch.data.view(packed.num_records, size)
        return batch if self._place is None else self._place(batch)


def collated(function: Callable[[Any], Any], samples: Any, plan: Plan, number: int) -> Any:
    """What the function makes of the samples. Its error gets a note that says which batch it was called with."""
    try:
        return function(samples)
    except StopIteration as error:
        changed = stop_iteration_error(error)
        add_note(changed, f"in collate on {plan.describe(number)}")
        raise changed from error
    except Exception as error:
        add_note(error, f"in collate on {plan.describe(number)}")
        raise
