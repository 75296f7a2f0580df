"""`ElasticSampler`: who reads what in a distributed job, and how it goes on after a restart with other ranks.

One order of all records for each epoch, decided by the seed alone. The ranks take turns: with 4 of them, rank 1 takes
positions 1, 5, 9, ... So after the same number of records on every rank, what was delivered is the beginning of the
order and what is left is its end, and a single number says where one stops and the other begins. Any number of ranks
can share what is left.

Nothing here needs a framework; `anyrecord.torch` has the same classes for PyTorch.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from operator import index
from typing import Generic, Literal, SupportsIndex, TypeAlias, TypeVar, get_args

from anyrecord import _core
from anyrecord._mapped import MappedRecords
from anyrecord._numbers import MOST_COUNT, optional_number, whole_number
from anyrecord._records import Records

__all__ = ["ElasticLoader", "ElasticSampler", "Share", "Tail"]

T = TypeVar("T")
Tail: TypeAlias = Literal["pad", "drop", "uneven"]

# How many record numbers are computed at once: enough to make the call cheap, a few kilobytes.
_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank takes of the rest of an epoch."""

    epoch: int
    """The epoch."""
    start: int
    """How many records all ranks together had before."""
    length: int
    """How many records an epoch has."""
    rank: int
    """Who takes it."""
    world: int
    """Among how many the rest is shared."""
    tail: Tail
    """What happens to records that do not go round."""

    def __len__(self) -> int:
        rounds, over = divmod(self.length - self.start, self.world)
        if self.tail == "pad":
            return rounds + (over > 0)
        return rounds + (self.tail == "uneven" and self.rank < over)

    def positions(self, begin: int, count: int) -> list[range]:
        """Positions in the order of the epoch, `count` of them from number `begin` on."""
        first = self.start + self.rank + begin * self.world
        inside = min(count, max(0, -((first - self.length) // self.world)))
        taken = range(first, first + inside * self.world, self.world)
        # Only the last round is ever padded: with records from the beginning of the epoch.
        padding = [
            range(p % self.length, p % self.length + 1)
            for p in range(taken.stop, first + count * self.world, self.world)
        ]
        return [taken, *padding]

    def position_after(self, count: int, *, ended: bool = False) -> int:
        """How many records all ranks together have had when each had `count` of its share."""
        if ended or (self.tail != "uneven" and count >= len(self)):
            return self.length
        return min(self.start + count * self.world, self.length)


class ElasticSampler:
    """Record numbers for this rank, in the order of the epoch; takes the place of `DistributedSampler`.

    >>> from anyrecord.sampling import ElasticSampler
    >>> sampler = ElasticSampler(10, seed=0, rank=0, world=2)
    >>> list(sampler)
    [0, 9, 6, 1, 8]
    >>> sampler.set_epoch(1)
    >>> it = iter(sampler)
    >>> next(it), next(it)
    (5, 8)
    >>> state = sampler.state_dict()                              # both ranks have had 2: position 4 of 10

    Three ranks continue where two stopped:

    >>> for rank in range(3):
    ...     resumed = ElasticSampler(10, seed=0, rank=rank, world=3)
    ...     resumed.load_state_dict(state)
    ...     print(rank, len(resumed), list(resumed))
    0 2 [7, 2]
    1 2 [9, 4]
    2 2 [1, 0]

    - `data`: the records (anything with a length), or how many there are.
    - `shuffle=False` takes them as they are; `window` and `block` are those of `Records.shuffle`.
    - `tail`: what happens when the rest does not go round. `"pad"`: every rank gets the same number, some records
      come twice. `"drop"`: every rank gets the same number, some records do not come. `"uneven"`: each record once,
      some ranks get one more.
    - `rank` and `world`: left out, they are found whenever an iteration begins: from `torch.distributed` where that is
      initialised, else from the environment (`RANK` and `WORLD_SIZE`), else there is one rank.

    An epoch that was iterated to its end is followed by the next one. `set_epoch` chooses one, and leaves the position
    alone if it is the current one, so a loop that calls it first thing resumes correctly.
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
            raise ValueError("rank= and world= go together")
        if not shuffle and (window is not None or block is not None):
            raise ValueError("window= and block= are for shuffle=True")
        ours = isinstance(data, Records | MappedRecords)
        if (block is not None and window is None) or (window is not None and block is None and not ours):
            raise ValueError("window= and block= go together; only Records have a block of their own")
        self.data = _data_or_count(data)
        self.seed = whole_number("seed", seed)
        self.tail: Tail = tail
        self.world = optional_number("world", world, 1)
        self.rank = None if self.world is None else optional_number("rank", rank, 0, self.world - 1)
        self._window, self._block = optional_number("window", window, 1), optional_number("block", block, 1)
        self._shuffle = shuffle
        self._epoch, self._start = 0, 0
        self._pass: _Pass | None = None
        self._check()

    def _check(self) -> None:
        """Wrong arguments are noticed now, not at the first iteration."""
        _ = self._rank_and_world(), self._order(0)

    @property
    def epoch(self) -> int:
        """The epoch."""
        return self._epoch

    @property
    def num_records(self) -> int:
        """How many records an epoch has."""
        return self.data if isinstance(self.data, int) else len(self.data)

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Chooses the epoch. Begins it anew, unless it is the current one and not at its end."""
        epoch = whole_number("epoch", epoch)
        if epoch != self._epoch or (self._pass is not None and self._pass.ended):
            self._epoch, self._start, self._pass = epoch, 0, None

    def share(self) -> Share:
        """What the next iteration takes."""
        epoch, start = self._epoch, self._start
        if self._pass is not None and self._pass.ended:
            epoch, start = epoch + 1, 0
        return Share(epoch, start, self.num_records, *self._rank_and_world(), self.tail)

    def __len__(self) -> int:
        """How many records the next iteration takes: all of this rank's, or what is left of them after a resume."""
        return len(self.share())

    def __iter__(self) -> Iterator[int]:
        share = self.share()
        self._epoch, self._start = share.epoch, share.start
        self._pass = _Pass(share, self._order(share.epoch))
        return self._pass

    def state_dict(self) -> dict[str, int]:
        """Where all ranks together are, if each had as many records as this one took: the same on every rank.

        A loader with workers takes record numbers ahead of what it delivers; `ElasticLoader` knows what it delivered.
        """
        if self._pass is not None:
            return self.state_at(
                self._pass.share, self._pass.share.position_after(self._pass.taken, ended=self._pass.ended)
            )
        return self.state_at(self.share(), self._start)

    def state_at(self, share: Share, position: int) -> dict[str, int]:
        """The state at a position of the epoch of a share."""
        return {"epoch": share.epoch, "position": position, "length": share.length, "order": self._fingerprint()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues where the state says, whatever the number of ranks, workers or records in a batch were there."""
        try:
            epoch, position, length, order = (index(state[key]) for key in ("epoch", "position", "length", "order"))
        except (KeyError, TypeError, IndexError):
            raise ValueError(
                f"not the state of a sampler: expected what state_dict() returned, found {state!r}"
            ) from None
        if length != self.num_records:
            raise ValueError(f"the state of another data set: it has {length} records, this one {self.num_records}")
        if order != self._fingerprint():
            raise ValueError("the state of another order: resume with the same seed, shuffle, window and block")
        if not 0 <= position <= length:
            raise ValueError(f"not the state of a sampler: position {position} of {length}")
        epoch = whole_number("epoch", epoch)
        # The end of an epoch is the beginning of the next. A loader that resumes lazily loads the one after
        # `set_epoch` has chosen the other.
        begins_next = self._epoch == epoch + 1 and self._start == 0 and (self._pass is None or self._pass.taken == 0)
        if not (position == length and begins_next):
            self._epoch, self._start = epoch, position
        self._pass = None

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
        # Asked for, not imported: whoever has initialised it has imported it.
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
        if rank is None or world is None:
            return 0, 1
        return _numbers_in_environment(rank, world)

    def __repr__(self) -> str:
        told = f"{self.num_records} records, seed {self.seed}, epoch {self._epoch}, tail {self.tail!r}"
        return f"<{type(self).__name__}: {told}>"


def _data_or_count(data: Sized | SupportsIndex) -> Sized | int:
    try:
        len(data)  # type: ignore[arg-type]  # an array of no dimension has the method, but no length
    except TypeError:
        return whole_number("data", data, 0, MOST_COUNT)  # type: ignore[arg-type]  # whatever it is
    return data  # type: ignore[return-value]  # it has a length


def _numbers_in_environment(rank: str, world: str) -> tuple[int, int]:
    which = "RANK and WORLD_SIZE in the environment"
    try:
        found = int(rank), int(world)
    except ValueError:
        raise ValueError(f"{which} are whole numbers, not {rank!r} and {world!r}") from None
    if not 0 <= found[0] < found[1]:
        raise ValueError(f"{which}: rank {rank} of {world}; ranks are numbered from 0 to world - 1")
    return found


class _Pass(Iterator[int]):
    """One iteration over a share."""

    def __init__(self, share: Share, order: _core.Permutation | None) -> None:
        self.share = share
        self.taken = 0
        # When somebody has asked for more than there is, and not before: loaders make passes that they never use.
        self.ended = False
        self._order = order
        self._size = len(share)
        self._ready: list[int] = []

    def __next__(self) -> int:
        if self.taken >= self._size:
            self.ended = True
            raise StopIteration
        if not self._ready:
            self._ready = self._compute(self.taken, min(_AT_ONCE, self._size - self.taken))
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
    """A data loader that knows what it has delivered, however far its workers are ahead.

    `loader` is PyTorch's `DataLoader`, or anything like it that draws from an `ElasticSampler` and keeps its order.

    >>> from anyrecord.sampling import ElasticLoader, ElasticSampler
    >>> class Loader:                                              # torch.utils.data.DataLoader, in earnest
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
            raise TypeError("the loader does not draw from an ElasticSampler; give it one as sampler=")
        self.sampler = found[0]
        sizes = [batch_size, getattr(loader, "batch_size", None), getattr(batch_sampler, "batch_size", None)]
        # Without batches, a loader delivers records one by one.
        self.batch_size = whole_number("batch_size", next((size for size in sizes if size is not None), 1), 1)
        self._state: dict[str, int] | None = None

    def __iter__(self) -> Iterator[T]:
        sampler, share, delivered = self.sampler, self.sampler.share(), 0
        self._state = sampler.state_at(share, share.start)
        for batch in self.loader:
            # Not cut to the share: in the last step, a rank with fewer records than others counts as they do.
            delivered += self.batch_size
            self._state = sampler.state_at(share, share.position_after(delivered))
            yield batch
        self._state = sampler.state_at(share, share.position_after(delivered, ended=True))

    def __len__(self) -> int:
        """How many batches the next iteration has."""
        return len(self.loader)  # type: ignore[arg-type]  # a loader without a length says so itself

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Chooses the epoch; see `ElasticSampler.set_epoch`."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """Where all ranks together are, if each was delivered as many batches as this one: the same on every rank."""
        return dict(self._state) if self._state is not None else self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues where the state says; see `ElasticSampler.load_state_dict`."""
        self.sampler.load_state_dict(state)
        self._state = None
