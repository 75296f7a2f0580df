"""`MappedRecords`: a lazy sequence with the results of a function on each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import index
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, SupportsIndex, TypeVar, overload

from anyrecord._calls import add_note, stop_iteration_error
from anyrecord._iteration import Batches, MappedIterator, index_of

if TYPE_CHECKING:
    from anyrecord._places import Skipped
    from anyrecord._records import Records
    from anyrecord._stats import Stats

__all__ = ["MappedRecords"]

T = TypeVar("T")
U = TypeVar("U")
E = TypeVar("E", bound=Exception)


class MappedRecords(Sequence[T], Generic[T]):
    """The results of a function on each record, as `Records.map` returns them.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many([b"1", b"2", b"three"])
    >>> numbers = anyrecord.open("doc.ffr").map(int)
    >>> numbers[1], numbers[[1, 0]]
    (2, [2, 1])

    The function runs every time a record is read; results are not stored.

    If the function raises an exception, a note on the exception says which record it was called with. `StopIteration`
    becomes `RuntimeError`, because it would end a loop over the records without an error.

    >>> try:
    ...     list(numbers)
    ... except ValueError as error:
    ...     print(error.__notes__)
    ['in the function on record 2 of doc.ffr']
    """

    __slots__ = ("_functions", "_records")

    def __init__(self, records: Records, *functions: Callable[[Any], Any]) -> None:
        self._records = records
        self._functions = functions

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
        if type(index) is not int:
            index = _kept(index)
        found: Any = self._records[index]
        if isinstance(found, bytes):
            return self._apply(found, index)
        if isinstance(found, list):
            return self._apply_all(found, index)
        return MappedRecords(found, *self._functions)

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[T]:
        indices = _kept(indices)
        return self._apply_all(self._records.__getitems__(indices), indices)

    def _getitems(self, indices: Iterable[SupportsIndex]) -> list[T | None]:
        """The results at many positions, for Grain. None for damaged records that are left out."""
        indices = _kept(indices)
        records = self._records._getitems(indices)
        values = iter(self._apply_all([record for record in records if record is not None], indices))
        return [None if record is None else next(values) for record in records]

    def _apply(self, record: bytes, position: SupportsIndex | MappedIterator[T]) -> T:
        value: Any = record
        try:
            for function in self._functions:
                value = function(value)
        except StopIteration as error:
            raise self._noted(stop_iteration_error(error), position) from error
        except Exception as error:
            self._noted(error, position)
            raise
        return value  # type: ignore[no-any-return]  # the last function's result

    def _apply_all(self, records: list[bytes], positions: Iterable[SupportsIndex]) -> list[T]:
        values: list[Any] = []
        try:
            for value in records:
                for function in self._functions:
                    value = function(value)
                values.append(value)
        except StopIteration as error:
            raise self._noted_among(stop_iteration_error(error), positions, len(values)) from error
        except Exception as error:
            self._noted_among(error, positions, len(values))
            raise
        return values

    def _noted_among(self, error: E, positions: Iterable[SupportsIndex], number: int) -> E:
        with suppress(Exception):  # the user's indices may fail here; the user must still see the function's error
            if self._records._leaves_out:
                length = len(self)
                positions = (p for p in map(index, positions) if not self._records._is_damaged(p % length))
            self._noted(error, next(islice(positions, number, None)))
        return error

    def _noted(self, error: E, position: SupportsIndex | MappedIterator[T]) -> E:
        """Adds a note to a function's error that says which record the function was called with."""
        with suppress(Exception):
            number = position._position - 1 if isinstance(position, MappedIterator) else position
            add_note(error, f"in the function on {self._records._describe(number)}")
        return error

    def __iter__(self) -> MappedIterator[T]:
        return MappedIterator(iter(self._records), self)

    def resume(self, state: Mapping[str, int]) -> MappedIterator[T]:
        """Returns an iterator that continues at the next record; see `Records.resume`."""
        return MappedIterator(self._records.resume(state), self)

    def batches(
        self,
        size: SupportsIndex,
        *,
        drop_last: bool = False,
        resume: Mapping[str, int] | None = None,
        packed: Literal[False] = False,
    ) -> Batches[list[T]]:
        """Returns lists of `size` results each, in order; see `Records.batches`. Results cannot be packed."""
        if packed:
            raise TypeError("the results of a function cannot be packed; call batches(..., packed=True) before map")
        return Batches(self, size, drop_last, resume)

    def shuffle(
        self,
        seed: SupportsIndex,
        epoch: SupportsIndex = 0,
        *,
        window: SupportsIndex | None = None,
        block: SupportsIndex | None = None,
    ) -> MappedRecords[T]:
        """Returns the results in an order that `seed` and `epoch` decide; see `Records.shuffle`."""
        return MappedRecords(self._records.shuffle(seed, epoch, window=window, block=block), *self._functions)

    def shard(self, rank: SupportsIndex, *, of: SupportsIndex) -> MappedRecords[T]:
        """Returns every `of`-th result, beginning at position `rank`; see `Records.shard`."""
        return MappedRecords(self._records.shard(rank, of=of), *self._functions)

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Returns the position of the first result that equals `value`. Raises ValueError if there is none."""
        return index_of(self, value, start, stop)

    def __add__(self, other: MappedRecords[T]) -> MappedRecords[T]:
        from anyrecord._combine import concat

        return concat([self, other]) if isinstance(other, MappedRecords) else NotImplemented

    def __reversed__(self) -> Iterator[T]:
        records = iter(self._records[::-1])
        for record in records:
            yield self._apply(record, len(self) - records._position)

    @property
    def _fingerprint(self) -> int:
        return self._records._fingerprint

    def map(self, function: Callable[[T], U]) -> MappedRecords[U]:
        """Applies another function to these results."""
        if not callable(function):
            raise TypeError(f"map needs a function, not {type(function).__name__}")
        return MappedRecords(self._records, *self._functions, function)

    @property
    def paths(self) -> list[str]:
        """The files, in order."""
        return self._records.paths

    def stats(self) -> Stats:
        """Returns what reading these records has cost so far. See `Records.stats`."""
        return self._records.stats()

    @property
    def skipped(self) -> list[Skipped]:
        """The damaged records that were left out or replaced; see `Records.skipped`."""
        return self._records.skipped

    def close(self) -> None:
        """Closes the underlying records; see `Records.close`."""
        self._records.close()

    @property
    def closed(self) -> bool:
        """Whether the underlying records were closed."""
        return self._records.closed

    def __enter__(self) -> Self:
        self._records.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        # Names instead of addresses, so the text is the same in every process.
        names = (getattr(f, "__qualname__", type(f).__qualname__) for f in self._functions)
        return repr(self._records) + "".join(f".map({name})" for name in names)


def _kept(indices: Any) -> Any:
    """The indices, as a list if they are an iterator. An error message needs them again after they were read."""
    return list(indices) if hasattr(indices, "__next__") else indices
