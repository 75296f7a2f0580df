"""Iterators whose state can be saved. The state is the position of the next record; prefetched records do not count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar

from anyrecord._calls import stop_iteration_error
from anyrecord._numbers import shown, state_numbers, whole_number

if TYPE_CHECKING:
    from anyrecord import _core
    from anyrecord._mapped import MappedRecords
    from anyrecord._records import Records

__all__ = ["BatchIterator", "Batches", "MappedIterator"]

T = TypeVar("T")
B = TypeVar("B")
"""A batch: a list of records or of results, or a `Packed`."""


def position_of(state: Mapping[str, int], length: int, fingerprint: int) -> int:
    """The position in a saved state of an iterator. Raises ValueError if the state is not of the same view."""
    keys = ("position", "length", "fingerprint")
    position, its_length, its_fingerprint = state_numbers(state, keys, "an iterator")
    if its_length != length:
        raise ValueError(
            f"the state is from another view: that view has {shown(its_length)} records, this one has {length}; "
            "resume from the same files with the same shuffle, shard and slice"
        )
    if its_fingerprint != fingerprint:
        raise ValueError(
            "the state is from another view: that view has as many records, but in another order or from other files; "
            "resume from the same files with the same shuffle (seed and epoch), shard and slice"
        )
    if not 0 <= position <= length:
        raise ValueError(f"this is not the state of an iterator: position {shown(position)} is not in 0 to {length}")
    return position


def index_of(records: Records | MappedRecords[Any], value: object, start: int, stop: int | None) -> int:
    """The position of the first record from `start` to `stop` that equals `value`.

    The version of `collections.abc.Sequence` is not used: it takes any IndexError for the end of the sequence.
    """
    begin, end, _ = slice(start, stop).indices(len(records))
    found_in = iter(records[begin:end])
    for found in found_in:
        if found is value or found == value:
            # Not counted by `enumerate`: damaged records may be left out.
            return begin + found_in._position - 1
    raise ValueError("no record in this range equals the value")


class MappedIterator(Iterator[T], Generic[T]):
    """Iterates over `MappedRecords`. `iter()` and `resume` return one."""

    def __init__(self, records: _core.RecordsIterator, mapped: MappedRecords[T]) -> None:
        self._records, self._mapped = records, mapped

    def __next__(self) -> T:
        # A StopIteration of `next` is the end of the records. `_apply` turns one of a user's function into an error.
        return self._mapped._apply(next(self._records), self)

    @property
    def _position(self) -> int:
        """The position after the last delivered record."""
        return self._records._position

    def __length_hint__(self) -> int:
        return self._records.__length_hint__()

    def state_dict(self) -> dict[str, int]:
        """Returns the state. `resume` and `load_state_dict` continue from it."""
        return self._records.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues at the position of a state. A state of another view raises ValueError and changes nothing."""
        self._records.load_state_dict(state)


class Batches(Generic[B]):
    """Batches of records, as `batches` returns them. It has a length, and you can iterate over it any number of times.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(10))
    >>> batches = anyrecord.open("doc.ffr").batches(4)
    >>> len(batches), [len(batch) for batch in batches], next(iter(batches))
    (3, [4, 4, 2], [b'0', b'1', b'2', b'3'])
    """

    def __init__(
        self,
        records: Records | MappedRecords[Any],
        size: SupportsIndex,
        drop_last: bool,
        resume: Mapping[str, int] | None,
        packed: bool = False,
    ) -> None:
        self._records = records
        self._size = whole_number("size", size, 1, None)
        self._drop_last, self._packed = bool(drop_last), bool(packed)
        self._start = 0 if resume is None else position_of(resume, len(records), records._fingerprint)

    def __len__(self) -> int:
        """How many batches an iteration delivers. With `resume=`, only the remaining ones count."""
        left = len(self._records) - self._start
        return left // self._size if self._drop_last else -(-left // self._size)

    def __iter__(self) -> BatchIterator[B]:
        return BatchIterator(self._records, self._size, self._drop_last, self._start, self._packed)

    def __repr__(self) -> str:
        packed = ", packed," if self._packed else ""
        return f"<anyrecord.Batches: {len(self)} of {self._size}{packed} from {self._records!r}>"


class BatchIterator(Iterator[B], Generic[B]):
    """Iterates over `Batches`. Its state counts records, so you can resume with another batch size."""

    def __init__(
        self, records: Records | MappedRecords[Any], size: int, drop_last: bool, position: int, packed: bool = False
    ) -> None:
        self._records, self._size, self._drop_last, self._packed = records, size, drop_last, packed
        self._length = len(records)
        self._fingerprint: int | None = None
        self._seek(position)

    def _seek(self, position: int) -> None:
        rest = self._length - position
        self._position = position
        self._ahead: Any = None
        self._end = position + (rest // self._size * self._size if self._drop_last else rest)

    def __next__(self) -> B:
        records: Any = self._records
        read = records.read_packed if self._packed else records.__getitems__
        while self._position < self._end:
            end = min(self._position + self._size, self._end)
            self._announce()
            try:
                batch = read(range(self._position, end))
            except StopIteration as error:
                raise stop_iteration_error(error) from error
            self._position = end  # set after the read: a batch that could not be read is not skipped
            if batch.num_records if self._packed else batch:  # all records may be damaged and left out
                return batch  # type: ignore[no-any-return]
        raise StopIteration

    def _announce(self) -> None:
        """Lets the disk or the server send this batch and the next ones, while the caller works on those before."""
        if self._ahead is None:
            # Of mapped records, those before the function.
            records: Any = getattr(self._records, "_records", self._records)
            self._ahead = records._read_ahead(self._position)
        self._ahead.go_on(self._position)

    def __length_hint__(self) -> int:
        return -((self._position - self._end) // self._size)

    def state_dict(self) -> dict[str, int]:
        """Returns the state. `load_state_dict`, `batches(..., resume=state)` and `resume(state)` continue from it."""
        return {"position": self._position, "length": self._length, "fingerprint": self._view()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues at the position of a state. A state of another view raises ValueError and changes nothing."""
        self._seek(position_of(state, self._length, self._view()))

    def _view(self) -> int:
        if self._fingerprint is None:
            self._fingerprint = self._records._fingerprint
        return self._fingerprint
