"""`ShardPlan`: divides records into shards, ranges that are handed out to workers at run time.

The line of all chunks (see `_shard_line`) is cut into equal parts. A chunk belongs to the part in which it begins. A
binary search finds the first chunk of a part, so a plan keeps no list of shards.
"""

from __future__ import annotations

from builtins import slice as Slice
from collections.abc import Iterator, Sequence
from operator import index
from typing import Any, SupportsIndex, overload

from anyrecord import _core
from anyrecord._dataclasses import dataclass
from anyrecord._mapped import MappedRecords
from anyrecord._numbers import MOST_COUNT, optional_number, whole_number
from anyrecord._records import Records
from anyrecord._shard_line import line_of
from anyrecord.errors import ClosedError, RecordError

__all__ = ["Shard", "ShardPlan"]

_DEFAULT_BYTES = 64 << 20
_VERSION = 1
"""A part of the fingerprint. Another way to cut needs another number, so that workers of two versions do not mix."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of records that one worker processes: `records[shard.start:shard.stop]`."""

    number: int
    """Its number in the plan."""
    start: int
    """The first record."""
    stop: int
    """The record after the last one."""
    bytes: int
    """How many bytes its chunks have in the files."""

    @property
    def slice(self) -> Slice:
        """The range, for `records[shard.slice]`."""
        return slice(self.start, self.stop)

    def __len__(self) -> int:
        return self.stop - self.start


class ShardPlan(Sequence[Shard]):
    """Divides records into shards. The same arguments give the same plan on every host; it takes almost no memory.

    >>> import anyrecord
    >>> with anyrecord.create("doc.recordio", overwrite=True, chunk_bytes=100) as out:
    ...     out.write_many(b"record %d" % i for i in range(100))
    >>> records = anyrecord.open("doc.recordio")
    >>> plan = anyrecord.ShardPlan(records, shard_records=25)
    >>> [(shard.start, shard.stop, shard.bytes) for shard in plan]
    [(0, 34, 1066), (34, 56, 698), (56, 78, 698), (78, 100, 698)]
    >>> [shard.start for shard in anyrecord.ShardPlan(records, seed=1, epoch=3, shard_records=25)]
    [56, 78, 0, 34]

    - `records`: an open data set, of any format, local or remote; slices and concatenations, too. Pass it in the order
      of the files. Records that are shuffled, mixed or left out have no chunks in common: they are divided by number.
    - `seed`, `epoch`: they decide the order of the shards. `seed=None` keeps the order of the records.
    - `shard_records` or `shard_bytes`: how large a shard is, on average. The default is 64 MiB, as stored in the files.
      All shards have about the same number of bytes, so shards of small records have more records.

    A chunk is never in two shards, and a shard has at least one. So there are at most as many shards as chunks. Where a
    chunk is larger than a shard should be, the next shards are empty; `ShardQueue.claim` leaves them out.
    """

    def __init__(
        self,
        records: Records | MappedRecords[Any],
        *,
        seed: SupportsIndex | None = None,
        epoch: SupportsIndex = 0,
        shard_records: SupportsIndex | None = None,
        shard_bytes: SupportsIndex | None = None,
    ) -> None:
        if not isinstance(records, Records | MappedRecords):
            raise TypeError(f"a ShardPlan takes records from anyrecord.open, not {type(records).__name__}")
        if shard_records is not None and shard_bytes is not None:
            raise ValueError("shard_records= and shard_bytes= exclude each other; pass one of them")
        self._seed = None if seed is None else whole_number("seed", seed)
        self._epoch = whole_number("epoch", epoch)
        self._size = (
            optional_number("shard_records", shard_records, 1, MOST_COUNT),
            optional_number("shard_bytes", shard_bytes, 1, MOST_COUNT),
        )
        self._records: Records = records._records if isinstance(records, MappedRecords) else records
        self._line = line_of(self._records)
        self._count = self._number_of_shards()
        # With one chunk in each shard, chunks are counted; a cut by bytes could leave a shard empty.
        self._is_by_chunk = self._count == self._line.chunks
        self._order = None if self._seed is None else _core.Permutation(self._count, self._seed, self._epoch)
        self._digest: str | None = None

    def _number_of_shards(self) -> int:
        of_records, of_bytes = self._size
        if not len(self._records):
            return 0
        if of_records is not None:
            count = -(-len(self._records) // of_records)
        else:
            count = -(-self._line.bytes // (of_bytes or _DEFAULT_BYTES))
        return max(1, min(count, self._line.chunks))

    @property
    def records(self) -> Records:
        """The records that are divided."""
        return self._records

    @property
    def seed(self) -> int | None:
        """The seed of the order. None if the shards are in the order of the records."""
        return self._seed

    @property
    def epoch(self) -> int:
        """The epoch. Each has another order."""
        return self._epoch

    @property
    def num_records(self) -> int:
        """How many records all shards have together."""
        return len(self._records)

    @property
    def num_bytes(self) -> int:
        """How many bytes the chunks of all shards have in the files."""
        return self._line.bytes

    def __len__(self) -> int:
        """How many shards there are."""
        return self._count

    @overload
    def __getitem__(self, number: SupportsIndex) -> Shard: ...
    @overload
    def __getitem__(self, number: slice) -> list[Shard]: ...
    def __getitem__(self, number: SupportsIndex | slice) -> Shard | list[Shard]:
        """The shard of that number, in the order of the plan."""
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(self._count))]
        wanted = index(number)
        if not -self._count <= wanted < self._count:
            raise IndexError(f"there is no shard {wanted}: the plan has {self._count} shards")
        wanted %= self._count
        part = wanted if self._order is None else self._order[wanted]
        (start, begin), (stop, end) = self._cut(part), self._cut(part + 1)
        return Shard(wanted, start, stop, end - begin)

    def _cut(self, part: int) -> tuple[int, int]:
        """Where a part begins: the position of its first record, and the bytes before it."""
        if part == self._count:
            return len(self._records), self._line.bytes
        if self._is_by_chunk:
            return self._line.find_chunk(part)
        return self._line.find(self._line.length * part // self._count)

    def __iter__(self) -> Iterator[Shard]:
        return map(self.__getitem__, range(self._count))

    @property
    def fingerprint(self) -> str:
        """A short text that is the same for the same data, seed, epoch and size of the shards, on every host.

        It is made of the names of the files without their folders, of the sizes of their parts, and of three records.
        """
        if self._digest is None:
            how = _VERSION, self._seed, self._epoch, self._count, self._is_by_chunk
            identity = repr((how, self._line.identity(), _sample(self._records)))
            self._digest = _core.sha1(identity.encode(errors="surrogatepass"))[:20]
        return self._digest

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, ShardPlan) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._records, self._seed, self._epoch, *self._size)

    def __repr__(self) -> str:
        order = "in the order of the records" if self._seed is None else f"seed {self._seed}, epoch {self._epoch}"
        return f"<anyrecord.ShardPlan: {self._count} shards of {len(self._records)} records, {order}>"


def _restored(
    records: Records, seed: int | None, epoch: int, of_records: int | None, of_bytes: int | None
) -> ShardPlan:
    return ShardPlan(records, seed=seed, epoch=epoch, shard_records=of_records, shard_bytes=of_bytes)


def _sample(records: Records) -> list[str]:
    """Hashes of the first, the middle and the last record."""
    count = len(records)
    return [_hash_of(records, position) for position in dict.fromkeys((0, count // 2, count - 1)) if count]


def _hash_of(records: Records, position: int) -> str:
    try:
        return _core.sha1(records[position])
    except ClosedError:
        raise
    except RecordError:  # a damaged record is found when its shard is read; the plan is about all others, too
        return ""
