"""`ElasticSampler`: divides the records of a distributed job among its ranks. It can resume with other ranks.

Each epoch has one order of all records, which only the seed and the epoch decide. The ranks take records in turn: with
4 ranks, rank 1 takes positions 1, 5, 9, ... When every rank has taken the same number of records, the delivered records
are the beginning of the order, and the remaining ones are its end. So one number is enough to resume, and any number of
ranks can share the remaining records.

This module needs no framework. `anyrecord.torch` has the same classes for PyTorch.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Generic, Literal, SupportsIndex, TypeAlias, TypeVar, get_args

from anyrecord import _core
from anyrecord._dataclasses import dataclass
from anyrecord._mapped import MappedRecords
from anyrecord._numbers import MOST_COUNT, optional_number, shown, state_numbers, whole_number
from anyrecord._records import Records

__all__ = ["ElasticLoader", "ElasticSampler", "Share", "Tail"]

T = TypeVar("T")
Tail: TypeAlias = Literal["pad", "drop", "uneven"]
"""What happens when the records do not divide evenly: some come twice, some are left out, or ranks get one more."""

# How many record numbers to compute in one call. That many make the call cheap and take a few kilobytes.
_NUMBERS_PER_CALL = 1024


@dataclass(frozen=True, slots=True)
class Share:
    """The part of an epoch's remaining records that one rank takes."""

    epoch: int
    """The epoch."""
    start: int
    """How many records all ranks together have taken before."""
    length: int
    """How many records an epoch has."""
    rank: int
    """The rank that takes this part."""
    world: int
    """How many ranks share the remaining records."""
    tail: Tail
    """What happens when the records do not divide evenly among the ranks."""

    def __len__(self) -> int:
        rounds, over = divmod(self.length - self.start, self.world)
        if self.tail == "pad":
            return rounds + (over > 0)
        return rounds + (self.tail == "uneven" and self.rank < over)

    def positions(self, begin: int, count: int) -> list[range]:
        """Returns `count` positions in the order of the epoch, beginning with number `begin` of this share."""
        first = self.start + self.rank + begin * self.world
        inside = min(count, max(0, -((first - self.length) // self.world)))
        taken = range(first, first + inside * self.world, self.world)
        # Only the last round can need padding. It is padded with records from the beginning of the epoch.
        padding = [
            range(p % self.length, p % self.length + 1)
            for p in range(taken.stop, first + count * self.world, self.world)
        ]
        return [taken, *padding]

    def position_after(self, count: int, *, ended: bool = False) -> int:
        """Returns how many records all ranks together have taken when each has taken `count` of its share."""
        if ended or (self.tail != "uneven" and count >= len(self)):
            return self.length
        return min(self.start + count * self.world, self.length)


class ElasticSampler:
    """Yields the record numbers of this rank, in the order of the epoch. It replaces PyTorch's `DistributedSampler`.

    >>> from anyrecord.sampling import ElasticSampler
    >>> sampler = ElasticSampler(10, seed=0, rank=0, world=2)
    >>> list(sampler)
    [0, 9, 6, 1, 8]
    >>> sampler.set_epoch(1)
    >>> it = iter(sampler)
    >>> next(it), next(it)
    (5, 8)
    >>> state = sampler.state_dict()                              # each rank has taken 2: position 4 of 10

    Three ranks continue where two stopped:

    >>> for rank in range(3):
    ...     resumed = ElasticSampler(10, seed=0, rank=rank, world=3)
    ...     resumed.load_state_dict(state)
    ...     print(rank, len(resumed), list(resumed))
    0 2 [7, 2]
    1 2 [9, 4]
    2 2 [1, 0]

    - `data`: the records (anything with a length), or how many there are.
    - `shuffle=False` keeps the stored order. `window` and `block` mean the same as for `Records.shuffle`.
    - `tail`: what happens when the records do not divide evenly among the ranks. With `"pad"`, every rank gets the same
      number and some records come twice. With `"drop"`, every rank gets the same number and some records are left out.
      With `"uneven"`, each record comes once and some ranks get one more.
    - `rank` and `world`: by default, they are looked up each time an iteration begins: from `torch.distributed` if it
      is initialised, else from the environment variables `RANK` and `WORLD_SIZE`. If neither is set, there is one rank.

    When all records of an epoch were taken, the next iteration takes the next epoch. `set_epoch` chooses an epoch. It
    keeps the position if that epoch is the current one, so a training loop can call it first and still resume
    correctly.
    """

    def __init__(
        self,
        data: Sized | SupportsIndex,
        *,
        seed: SupportsIndex = 0,
        shuffle: bool = True,
        tail: Tail = "pad",
        window: SupportsIndex | None = None,
        block: SupportsIndex | None = None,
        rank: SupportsIndex | None = None,
        world: SupportsIndex | None = None,
    ) -> None:
        if tail not in get_args(Tail):
            raise ValueError(f"tail={tail!r} is not valid: it must be 'pad', 'drop' or 'uneven'")
        if (rank is None) != (world is None):
            raise ValueError("rank= and world= go together; pass both or none")
        if not shuffle and (window is not None or block is not None):
            raise ValueError("window= and block= need shuffle=True")
        ours = isinstance(data, Records | MappedRecords)
        if (block is not None and window is None) or (window is not None and block is None and not ours):
            raise ValueError("window= and block= go together; pass both (only Records can find the block themselves)")
        self.data = _data_or_count(data)
        self.seed = whole_number("seed", seed)
        self.tail: Tail = tail
        self.world = optional_number("world", world, 1)
        self.rank = None if self.world is None else optional_number("rank", rank, 0, self.world - 1)
        self._window, self._block = optional_number("window", window, 1), optional_number("block", block, 1)
        self._shuffle = shuffle
        self._epoch, self._start = 0, 0
        self._pass: Pass | None = None
        self._check()

    def _check(self) -> None:
        """Raises for wrong arguments now, not at the first iteration."""
        _ = self._rank_and_world(), self._order(0)

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._epoch

    @property
    def num_records(self) -> int:
        """How many records an epoch has."""
        return self.data if isinstance(self.data, int) else len(self.data)

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Chooses the epoch. Starts it from the beginning, unless it is the current epoch and not at its end."""
        epoch = whole_number("epoch", epoch)
        if epoch != self._epoch or (self._pass is not None and self._pass.is_over):
            self._epoch, self._start, self._pass = epoch, 0, None

    def share(self) -> Share:
        """Returns what the next iteration takes."""
        epoch, start = self._epoch, self._start
        if self._pass is not None and self._pass.is_over:
            epoch, start = epoch + 1, 0
        return Share(epoch, start, self.num_records, *self._rank_and_world(), self.tail)

    def __len__(self) -> int:
        """How many records the next iteration takes: all records of this rank, or the remaining ones after a resume."""
        return len(self.share())

    def __iter__(self) -> Pass:
        share = self.share()
        self._epoch, self._start = share.epoch, share.start
        self._pass = Pass(share, self._order(share.epoch))
        return self._pass

    def state_dict(self) -> dict[str, int]:
        """Returns the position of all ranks together. It assumes that each rank has taken as many records as this one.

        The state is then the same on every rank. A loader with workers takes record numbers ahead of what it delivers.
        Use `ElasticLoader` to count what was delivered.
        """
        if self._pass is not None:
            return self.state_at(
                self._pass.share, self._pass.share.position_after(self._pass.taken, ended=self._pass.ended)
            )
        return self.state_at(self.share(), self._start)

    def state_at(self, share: Share, position: int) -> dict[str, int]:
        """Returns the state at a position in the epoch of a share."""
        return {"epoch": share.epoch, "position": position, "length": share.length, "order": self._fingerprint()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues from the state. The number of ranks, workers and records in a batch can differ from before."""
        keys = ("epoch", "position", "length", "order")
        epoch, position, length, order = state_numbers(state, keys, "a sampler")
        if length != self.num_records:
            raise ValueError(
                f"the state is from another data set: that one has {shown(length)} records, "
                f"this one {self.num_records}; resume with the same data"
            )
        if order != self._fingerprint():
            raise ValueError("the state is from another order; resume with the same seed, shuffle, window and block")
        if not 0 <= position <= length:
            raise ValueError(f"this is not the state of a sampler: position {shown(position)} is not in 0 to {length}")
        epoch = whole_number("epoch", epoch)
        # The end of an epoch is the same position as the beginning of the next one. A loader that resumes lazily loads
        # a state at the end of an epoch after `set_epoch` has already chosen the next epoch.
        begins_next = self._epoch == epoch + 1 and self._start == 0 and (self._pass is None or self._pass.taken == 0)
        if not (position == length and begins_next):
            self._epoch, self._start = epoch, position
        self._pass = None

    def _ordered(self, records: Records, epoch: int) -> Records:
        """Returns the records in the order of an epoch."""
        order = self._order(epoch)
        return records if order is None else type(records)(_core.shuffle(records._source, order))

    def _order(self, epoch: int) -> _core.Permutation | None:
        if not self._shuffle:
            return None
        data = self.data._records if isinstance(self.data, MappedRecords) else self.data
        if self._window is not None and isinstance(data, Records):
            return _core.order_of(data._source, self.seed, epoch, self._window, self._block)
        return _core.Permutation(self.num_records, self.seed, epoch, self._window, self._block)

    def _fingerprint(self) -> int:
        order = self._order(0)
        return 0 if order is None else order._fingerprint

    def _rank_and_world(self) -> tuple[int, int]:
        if self.rank is not None and self.world is not None:
            return self.rank, self.world
        # Not imported here: if it is initialised, it is already imported.
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
        if rank is None or world is None:
            return 0, 1
        return _numbers_in_environment(rank, world)

    def __repr__(self) -> str:
        text = f"{self.num_records} records, seed {self.seed}, epoch {self._epoch}, tail {self.tail!r}"
        return f"<{type(self).__name__}: {text}>"


def _data_or_count(data: Sized | SupportsIndex) -> Sized | int:
    try:
        len(data)  # type: ignore[arg-type]  # an array with zero dimensions has `__len__`, but it raises
    except TypeError:
        return whole_number("data", data, 0, MOST_COUNT)  # type: ignore[arg-type]  # it checks the type
    return data  # type: ignore[return-value]  # it has a length


def _numbers_in_environment(rank: str, world: str) -> tuple[int, int]:
    which = f"the environment variables RANK={rank!r} and WORLD_SIZE={world!r} are not valid"
    try:
        found = int(rank), int(world)
    except ValueError:
        raise ValueError(f"{which}: they must be whole numbers") from None
    if not 0 <= found[0] < found[1]:
        raise ValueError(f"{which}: RANK must be from 0 to WORLD_SIZE - 1")
    return found


class Pass(Iterator[int]):
    """One iteration over a share. It is for loaders, which count in it what they have delivered."""

    def __init__(self, share: Share, order: _core.Permutation | None) -> None:
        self.share = share
        self.taken = 0
        # The caller has asked for more than there is.
        self.ended = False
        self.counted: Pass | None = None
        """What of this pass was delivered, if a loader that takes numbers ahead counts that."""
        self._order = order
        self._size = self._end = len(share)
        self._ready: list[int] = []

    def leave_out_rest(self, batch_size: int) -> None:
        """Says that a last batch that is not full will not be delivered."""
        self._end -= self._end % batch_size

    @property
    def is_over(self) -> bool:
        """Whether all was delivered, so that the next epoch follows."""
        if self.counted is not None:
            return self.counted.is_over
        # A pass that has nothing to deliver is over when it was asked: loaders start iterations that they never use.
        return self.ended or 0 < self._end <= self.taken

    def __next__(self) -> int:
        if self.taken >= self._size:
            self.ended = True
            raise StopIteration
        if not self._ready:
            self._ready = self._compute(self.taken, min(_NUMBERS_PER_CALL, self._size - self.taken))
            self._ready.reverse()
        self.taken += 1
        return self._ready.pop()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_ready": []}

    def _compute(self, begin: int, count: int) -> list[int]:
        found = array("Q")
        for positions in self.share.positions(begin, count):
            found.extend(positions if self._order is None else self._order.take(positions))
        return found.tolist()

    def __length_hint__(self) -> int:
        return self._size - self.taken


class ElasticLoader(Generic[T]):
    """Wraps a data loader and counts what it has delivered, however far ahead its workers read.

    `loader` is PyTorch's `DataLoader`, or any loader that draws from an `ElasticSampler` and keeps its order.

    >>> from anyrecord.sampling import ElasticLoader, ElasticSampler
    >>> class Loader:                                              # stands in for torch.utils.data.DataLoader
    ...     batch_size, sampler = 2, ElasticSampler(10, seed=0, rank=0, world=2)
    ...     def __iter__(self):
    ...         numbers = list(self.sampler)                       # reads everything ahead
    ...         return iter([numbers[i : i + 2] for i in range(0, len(numbers), 2)])
    >>> loader = ElasticLoader(Loader())
    >>> for batch in loader:
    ...     print(batch, loader.state_dict()["position"])
    [0, 9] 4
    [6, 1] 8
    [8] 10
    """

    def __init__(
        self, loader: Iterable[T], *, sampler: ElasticSampler | None = None, batch_size: SupportsIndex | None = None
    ) -> None:
        self.loader = loader
        batch_sampler = getattr(loader, "batch_sampler", None)
        candidates = [sampler, getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None)]
        found = [each for each in candidates if isinstance(each, ElasticSampler)]
        if not found:
            raise TypeError("the loader does not use an ElasticSampler; pass it one as sampler=")
        self.sampler = found[0]
        sizes = [batch_size, getattr(loader, "batch_size", None), getattr(batch_sampler, "batch_size", None)]
        # Without batches, a loader delivers records one by one.
        self.batch_size = whole_number("batch_size", next((size for size in sizes if size is not None), 1), 1)
        self._drop_last = any(getattr(each, "drop_last", False) for each in (loader, batch_sampler))
        self._state: dict[str, int] | None = None

    def __iter__(self) -> Iterator[T]:
        sampler, before = self.sampler, self.sampler._pass
        counted = Pass(sampler.share(), None)
        if self._drop_last:
            counted.leave_out_rest(self.batch_size)
        self._count(counted)
        is_begun = False
        try:
            for batch in self.loader:
                # Not limited to the size of the share: all ranks must count the same in the last step, even if this
                # rank has fewer records than others.
                counted.taken += self.batch_size
                self._count(counted)
                if not is_begun:
                    is_begun = True
                    self._begin(counted, before)
                yield batch
            counted.ended = True
            self._count(counted)
        finally:
            if not is_begun:
                self._begin(counted, before)

    def _begin(self, counted: Pass, before: Pass | None) -> None:
        """Lets the pass that the loader has begun be over when all was delivered. Workers may have taken all before."""
        drawn = self.sampler._pass
        if drawn is not None and drawn is not before:
            drawn.counted = counted

    def _count(self, counted: Pass) -> None:
        share = counted.share
        self._state = self.sampler.state_at(share, share.position_after(counted.taken, ended=counted.ended))

    def __len__(self) -> int:
        """How many batches the next iteration has."""
        return len(self.loader)  # type: ignore[arg-type]  # a loader without a length raises TypeError

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Chooses the epoch; see `ElasticSampler.set_epoch`."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """Returns the position of all ranks together, the same on every rank.

        It assumes that each rank was delivered as many batches as this one.
        """
        return dict(self._state) if self._state is not None else self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues from the state; see `ElasticSampler.load_state_dict`."""
        self.sampler.load_state_dict(state)
        self._state = None
