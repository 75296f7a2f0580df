"""Iterators that know where they are: a state is the position of the next record, whatever was read ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import index
from typing import TYPE_CHECKING, Any, Generic, Protocol, SupportsIndex, TypeVar

if TYPE_CHECKING:
    from anyrecord import _core

__all__ = ["BatchIterator", "MappedIterator"]

T = TypeVar("T")


class _Sequence(Protocol[T]):
    """What can be iterated over in batches: `Records` and `MappedRecords`."""

    def __len__(self) -> int: ...
    def __getitems__(self, indices: range) -> list[T]: ...
    @property
    def _fingerprint(self) -> int: ...


def position_of(records: _Sequence[Any], state: Mapping[str, int]) -> int:
    """The position that a state of an iterator stands for, if it is a state of these records."""
    try:
        position, length, fingerprint = state["position"], state["length"], state["fingerprint"]
    except (KeyError, TypeError, IndexError):
        raise ValueError(
            f"not the state of an iterator: expected what state_dict() returned, found {state!r}"
        ) from None
    if length != len(records):
        raise ValueError(f"the state of another view: it has {length} records, these are {len(records)}")
    if fingerprint != records._fingerprint:
        raise ValueError(
            "the state of another view: it has as many records, but in another order or from other files; "
            "resume from the same files with the same shuffle (seed and epoch), shard and slice"
        )
    if not isinstance(position, int) or not 0 <= position <= length:
        raise ValueError(f"not the state of an iterator: position {position!r} of {length}")
    return position


class MappedIterator(Iterator[T], Generic[T]):
    """Iterates over `MappedRecords`."""

    def __init__(self, records: _core.RecordsIterator, function: Callable[[bytes], T]) -> None:
        self._records, self._function = records, function

    def __next__(self) -> T:
        return self._function(next(self._records))

    def __length_hint__(self) -> int:
        return self._records.__length_hint__()

    def state_dict(self) -> dict[str, int]:
        """Where it is; `resume` continues there."""
        return self._records.state_dict()


class BatchIterator(Iterator[list[T]], Generic[T]):
    """What `batches` returns: lists of records. Its state counts records, so that batches of another size may go on."""

    def __init__(
        self, records: _Sequence[T], size: SupportsIndex, drop_last: bool, resume: Mapping[str, int] | None
    ) -> None:
        if not hasattr(size, "__index__"):
            raise TypeError(f"the size of a batch is a whole number, not {size!r}")
        size = index(size)
        if size < 1:
            raise ValueError(f"a batch has at least 1 record, not {size}")
        self._records, self._size = records, size
        self._position = 0 if resume is None else position_of(records, resume)
        self._length = len(records)
        rest = self._length - self._position
        self._end = self._position + (rest // size * size if drop_last else rest)
        self._fingerprint: int | None = None

    def __next__(self) -> list[T]:
        if self._position >= self._end:
            raise StopIteration
        end = min(self._position + self._size, self._end)
        batch = self._records.__getitems__(range(self._position, end))
        self._position = end  # only now: a batch that could not be read is not behind us
        return batch

    def __length_hint__(self) -> int:
        return -((self._position - self._end) // self._size)

    def state_dict(self) -> dict[str, int]:
        """Where it is; `batches(..., resume=state)` continues there, and so does `resume(state)`, record by record."""
        if self._fingerprint is None:
            self._fingerprint = self._records._fingerprint
        return {"position": self._position, "length": self._length, "fingerprint": self._fingerprint}
