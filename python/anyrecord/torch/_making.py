"""How one batch is made: which records it has, and how they are read, decoded and collated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from anyrecord._calls import add_note, stop_iteration_error
from anyrecord._mapped import MappedRecords
from anyrecord._records import Records
from anyrecord.sampling import Share
from anyrecord.torch._collate import Form, from_packed, pinned
from anyrecord.torch._packed import PackedTensors
from anyrecord.torch._pipeline import NOTHING

__all__ = ["ListMaker", "PackedMaker", "Plan", "Positions", "bytes_of"]

Positions = Sequence[int]


class Plan:
    """The records of each batch of a share."""

    def __init__(self, records: Records, share: Share, batch_size: int, drop_last: bool) -> None:
        self.records = records
        """All records, in the order of the epoch."""
        self.batch_size = batch_size
        self._share, self._size = share, len(share)
        whole, rest = divmod(self._size, batch_size)
        self.count = whole + (rest > 0 and not drop_last)
        self._ahead: Any = None
        if records._is_remote and self._size:
            self._ahead = records[share.start + share.rank :: share.world]._read_ahead(0)

    def positions(self, number: int) -> Positions:
        """The positions of the records of one batch, in the order of the epoch."""
        begin = number * self.batch_size
        if self._ahead is not None:
            # Lets servers send the records of this batch and of the next ones.
            self._ahead.go_on(min(begin, self._size))
        count = min(self.batch_size, self._size - begin)
        taken, *padding = self._share.positions(begin, count)
        return list(chain(taken, *padding)) if padding else taken

    def describe(self, number: int) -> str:
        """A batch as error messages name it."""
        return f"the batch that begins with {self.records._describe(self.positions(number)[0])}"


class ListMaker:
    """Makes lists of samples, or what a function makes of such a list."""

    def __init__(
        self,
        plan: Plan,
        functions: Sequence[Callable[[Any], Any]],
        collate: Callable[[list[Any]], Any] | None,
        pin_memory: bool,
    ) -> None:
        self._plan, self._collate, self._pin_memory = plan, collate, pin_memory
        self.can_split = bool(functions)
        source: Any = MappedRecords(plan.records, *functions) if functions else plan.records
        self._read: Callable[[Positions], list[Any]] = source.__getitems__

    def begin_thread(self) -> None:
        """Nothing to do."""

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
        if self._collate is None:
            return pinned(samples) if self._pin_memory else samples
        batch = collated(self._collate, samples, self._plan, number)
        return pinned(batch) if self._pin_memory else batch

    def size(self, value: Any) -> int:
        return bytes_of(value)


class PackedMaker:
    """Makes tensors of records that are not decoded."""

    can_split = False

    def __init__(self, plan: Plan, form: Form, pin_memory: bool) -> None:
        self._plan, self._form, self._pin_memory = plan, form, pin_memory

    def begin_thread(self) -> None:
        """Nothing to do."""

    def make(self, number: int, piece: int, of: int) -> Any:
        packed = self._plan.records.read_packed(self._plan.positions(number))
        return packed if packed.num_records else NOTHING

    def finish(self, number: int, pieces: list[Any]) -> Any:
        if pieces[0] is NOTHING:
            return NOTHING
        tensors = PackedTensors._of(pieces[0], self._pin_memory)
        return collated(lambda tensors: from_packed(tensors, self._form), tensors, self._plan, number)

    def size(self, value: Any) -> int:
        return bytes_of(value)


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


def bytes_of(value: Any) -> int:
    """About how many bytes a batch holds: of its records, tensors and arrays."""
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, list | tuple):
        # All samples of a batch have about the same size, and a batch can have many.
        few = value[:16]
        return sum(map(bytes_of, few)) * len(value) // len(few) if few else 0
    if isinstance(value, dict):
        return sum(map(bytes_of, value.values()))
    try:
        return int(value.nbytes)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return 0
