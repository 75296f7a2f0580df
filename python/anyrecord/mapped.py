"""Records with a function on each: lazy, and a sequence again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar, overload

from anyrecord.iteration import BatchIterator, MappedIterator

if TYPE_CHECKING:
    from anyrecord.records import Records

__all__ = ["MappedRecords"]

T = TypeVar("T")
U = TypeVar("U")


class MappedRecords(Sequence[T], Generic[T]):
    """What `Records.map` returns. The function runs when a record is read, every time it is read."""

    __slots__ = ("_functions", "_records")

    def __init__(self, records: Records, *functions: Callable[[Any], Any]) -> None:
        self._records = records
        self._functions = functions

    def _apply(self, record: bytes) -> T:
        value: Any = record
        for function in self._functions:
            value = function(value)
        return value  # type: ignore[no-any-return]  # the last function's result

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> MappedRecords[T]: ...
    @overload
    def __getitem__(self, index: Iterable[SupportsIndex]) -> list[T]: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    def __getitem__(self, index: Any) -> T | list[T] | MappedRecords[T]:
        found: Any = self._records[index]
        if isinstance(found, bytes):
            return self._apply(found)
        if isinstance(found, list):
            return [self._apply(record) for record in found]
        return MappedRecords(found, *self._functions)

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[T]:
        return [self._apply(record) for record in self._records.__getitems__(indices)]

    _getitems = __getitems__

    def __iter__(self) -> MappedIterator[T]:
        return MappedIterator(iter(self._records), self._apply)

    def resume(self, state: Mapping[str, int]) -> MappedIterator[T]:
        """An iterator that continues at the very next record; see `Records.resume`."""
        return MappedIterator(self._records.resume(state), self._apply)

    def batches(
        self, size: SupportsIndex, *, drop_last: bool = False, resume: Mapping[str, int] | None = None
    ) -> BatchIterator[T]:
        """Lists of `size` results each, in order; see `Records.batches`."""
        return BatchIterator(self, size, drop_last, resume)

    def shuffle(
        self, seed: SupportsIndex, epoch: SupportsIndex = 0, *, window: int | None = None, block: int | None = None
    ) -> MappedRecords[T]:
        """The results in an order that `seed` and `epoch` decide; see `Records.shuffle`."""
        return MappedRecords(self._records.shuffle(seed, epoch, window=window, block=block), *self._functions)

    def shard(self, rank: SupportsIndex, *, of: SupportsIndex) -> MappedRecords[T]:
        """Every `of`-th result, from the one at position `rank` on; see `Records.shard`."""
        return MappedRecords(self._records.shard(rank, of=of), *self._functions)

    def __add__(self, other: MappedRecords[T]) -> MappedRecords[T]:
        from anyrecord.combine import concat

        return concat([self, other]) if isinstance(other, MappedRecords) else NotImplemented

    @property
    def _fingerprint(self) -> int:
        return self._records._fingerprint

    def map(self, function: Callable[[T], U]) -> MappedRecords[U]:
        """A function on the results of this one."""
        return MappedRecords(self._records, *self._functions, function)

    @property
    def paths(self) -> list[str]:
        """The files, in order."""
        return self._records.paths

    def __repr__(self) -> str:
        # Names, not addresses: the same in every process.
        names = (getattr(f, "__qualname__", type(f).__qualname__) for f in self._functions)
        return repr(self._records) + "".join(f".map({name})" for name in names)
