"""Iterators that know where they are: a state is the position of the next record, whatever was read ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Generic, Protocol, SupportsIndex, TypeVar

from anyrecord._calls import not_an_end
from anyrecord._numbers import whole_number

if TYPE_CHECKING:
    from anyrecord import _core
    from anyrecord._mapped import MappedRecords

__all__ = ["BatchIterator", "Batches", "MappedIterator"]

T = TypeVar("T")


class _Sequence(Protocol[T]):
    """What can be iterated over in batches: `Records` and `MappedRecords`."""

    def __len__(self) -> int: ...
    def __getitems__(self, indices: range) -> list[T]: ...
    @property
    def _fingerprint(self) -> int: ...


def position_of(state: Mapping[str, int], length: int, fingerprint: int) -> int:
    """The position that a state of an iterator stands for, if it is a state of the view with that fingerprint."""
    try:
        position, its_length, its_fingerprint = (index(state[key]) for key in ("position", "length", "fingerprint"))
    except (KeyError, TypeError, IndexError):
        raise ValueError(
            f"not the state of an iterator: expected what state_dict() returned, found {state!r}"
        ) from None
    if its_length != length:
        raise ValueError(f"the state of another view: it has {its_length} records, these are {length}")
    if its_fingerprint != fingerprint:
        raise ValueError(
            "the state of another view: it has as many records, but in another order or from other files; "
            "resume from the same files with the same shuffle (seed and epoch), shard and slice"
        )
    if not 0 <= position <= length:
        raise ValueError(f"not the state of an iterator: position {position!r} of {length}")
    return position


def index_of(records: Sequence[Any], value: object, start: int, stop: int | None) -> int:
    """The position of the first record in a part that equals `value`.

    What `collections.abc.Sequence` has for this takes an IndexError of anybody for the end of the sequence.
    """
    begin, end, _ = slice(start, stop).indices(len(records))
    for position, found in enumerate(records[begin:end], begin):
        if found is value or found == value:
            return position
    raise ValueError("there is no such record")


class MappedIterator(Iterator[T], Generic[T]):
    """Iterates over `MappedRecords`. Made by `iter()` and `resume`."""

    def __init__(self, records: _core.RecordsIterator, mapped: MappedRecords[T]) -> None:
        self._records, self._mapped = records, mapped

    def __next__(self) -> T:
        # A StopIteration of the records is the end; one of a function is turned into an error by `_apply`.
        return self._mapped._apply(next(self._records), self)

    def _last(self) -> int:
        """The position of the record that came last; asked for when a function fails on it."""
        return self._records.state_dict()["position"] - 1

    def __length_hint__(self) -> int:
        return self._records.__length_hint__()

    def state_dict(self) -> dict[str, int]:
        """Where it is; `resume` and `load_state_dict` continue there."""
        return self._records.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues at the position of a state; one of another view is a ValueError, and changes nothing."""
        self._records.load_state_dict(state)


class Batches(Generic[T]):
    """What `batches` returns: lists of records. It has a length, and can be iterated over any number of times.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(10))
    >>> batches = anyrecord.open("doc.ffr").batches(4)
    >>> len(batches), [len(batch) for batch in batches], next(iter(batches))
    (3, [4, 4, 2], [b'0', b'1', b'2', b'3'])
    """

    def __init__(
        self, records: _Sequence[T], size: SupportsIndex, drop_last: bool, resume: Mapping[str, int] | None
    ) -> None:
        self._records = records
        self._size = whole_number("size", size, 1, None)
        self._drop_last = bool(drop_last)
        self._start = 0 if resume is None else position_of(resume, len(records), records._fingerprint)

    def __len__(self) -> int:
        """How many batches an iteration gives: after `resume=`, those that are left."""
        left = len(self._records) - self._start
        return left // self._size if self._drop_last else -(-left // self._size)

    def __iter__(self) -> BatchIterator[T]:
        return BatchIterator(self._records, self._size, self._drop_last, self._start)

    def __repr__(self) -> str:
        return f"<anyrecord.Batches: {len(self)} of {self._size} from {self._records!r}>"


class BatchIterator(Iterator[list[T]], Generic[T]):
    """Iterates over `Batches`. Its state counts records, so that batches of another size may go on."""

    def __init__(self, records: _Sequence[T], size: int, drop_last: bool, position: int) -> None:
        self._records, self._size, self._drop_last = records, size, drop_last
        self._length = len(records)
        self._fingerprint: int | None = None
        self._go_to(position)

    def _go_to(self, position: int) -> None:
        rest = self._length - position
        self._position = position
        self._end = position + (rest // self._size * self._size if self._drop_last else rest)

    def __next__(self) -> list[T]:
        if self._position >= self._end:
            raise StopIteration
        end = min(self._position + self._size, self._end)
        try:
            batch = self._records.__getitems__(range(self._position, end))
        except StopIteration as error:
            raise not_an_end(error) from error
        self._position = end  # only now: a batch that could not be read is not behind us
        return batch

    def __length_hint__(self) -> int:
        return -((self._position - self._end) // self._size)

    def state_dict(self) -> dict[str, int]:
        """Where it is; `load_state_dict`, `batches(..., resume=state)` and `resume(state)` continue there."""
        return {"position": self._position, "length": self._length, "fingerprint": self._view()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues at the position of a state; one of another view is a ValueError, and changes nothing."""
        self._go_to(position_of(state, self._length, self._view()))

    def _view(self) -> int:
        if self._fingerprint is None:
            self._fingerprint = self._records._fingerprint
        return self._fingerprint
