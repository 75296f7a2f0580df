"""Records with a function on each: lazy, and a sequence again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar, overload

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

    def __iter__(self) -> Iterator[T]:
        return map(self._apply, self._records)

    def batches(self, size: SupportsIndex, *, drop_last: bool = False) -> Iterator[list[T]]:
        """Lists of `size` results each, in order; the last one may be shorter, or is left out."""
        batches = self._records.batches(size, drop_last=drop_last)
        return ([self._apply(record) for record in batch] for batch in batches)

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
