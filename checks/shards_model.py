"""The protocol of `ShardQueue` in every order in which its steps can happen, for a few workers and shards.

The functions of `anyrecord._shard_state` that the queue itself uses decide every write. Around them, everything that
can go wrong does, at every moment:

- The answer to a write that was applied is lost. The worker reads again and decides again, or gives up.
- A write is late: the worker has given up waiting for it, and it arrives at any later time, once, several times, or
  never. It is applied if the value is still the one that was read before.
- In one of the models, values are not unique: what is equal but for the number of renewals counts as the same value. So
  late writes and copies of writes are applied that a store would refuse.
- A worker stops for longer than its lease, or seems to: any lease may expire at any time. So nothing depends on clocks.
- A worker is killed, and another one starts in its place, which knows nothing.

The number of crashes, expired leases and lost answers is not bounded. States that differ only in how large tokens are,
and not in their order, or in which worker is which, are the same state; so there are finitely many.

In every state: each shard is in exactly one place; only the newest claim of a shard completes it, and only once; a
worker hears that it has completed a shard if and only if it has. And from every state, each worker by itself, without
the others, can bring all shards to their end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

from anyrecord import _shard_state
from anyrecord._shard_state import Held, Partition

from checks.figures import Figure

__all__ = ["Model", "run"]

SIZES = [(3, 3, 2, True), (2, 2, 9, True), (2, 2, 1, False)]
"""Workers, shards, how many late writes are on their way at the same time, and whether values are unique."""
SHORT_SIZES = [(3, 3, 0, True), (3, 2, 1, True), (2, 1, 1, False)]


class Worker(NamedTuple):
    """What a worker knows. What it has read is not in it: a write that is decided upon an old value is not applied."""

    is_claiming: bool = False
    """Whether it does not know if its claim has succeeded."""
    shard: int = -1
    token: int = 0
    """The claim that it holds, as far as it knows. 0 if it has none."""
    has_completed: bool = False
    """Whether a `complete` of this claim was applied. The worker does not know that."""


class Write(NamedTuple):
    """A write that is late."""

    doing: str
    shard: int
    token: int
    expected: Partition
    wanted: Partition


class State(NamedTuple):
    """Everything."""

    partition: Partition
    workers: tuple[Worker, ...]
    late: frozenset[Write]
    newest: tuple[int, ...]
    """The newest token of each shard that was ever written."""
    done: tuple[bool, ...]
    """Whether a `complete` of the shard was ever applied."""


class Wrong(Exception):
    """The protocol does what it must not do."""


@dataclass
class Model:
    """All states that can be reached."""

    workers: int
    shards: int
    most_late: int
    has_unique_values: bool = True
    numbers: dict[State, int] = field(default_factory=dict)
    before: list[list[int]] = field(default_factory=list)
    """For each state and worker: the states, and who the worker is there, from which its step leads here."""
    wrong: list[str] = field(default_factory=list)
    steps: int = 0

    def explore(self, most_states: int = 1 << 40) -> None:
        """Goes to every state that can be reached, up to the first one that is wrong."""
        first = State(Partition(0), (Worker(),) * self.workers, frozenset(), (0,) * self.shards, (False,) * self.shards)
        self.numbers[first] = 0
        self.before = [[] for _ in range(self.workers)]
        waiting = deque([first])
        while waiting and len(self.numbers) < most_states:
            state = waiting.popleft()
            source = self.numbers[state] * self.workers
            try:
                for worker, reached in self._steps(state):
                    self._reach(reached, worker, source, waiting)
            except Wrong as error:
                self.wrong.append(f"{error} after {state}")
                return

    def _reach(self, reached: State, worker: int, source: int, waiting: deque[State]) -> None:
        self.steps += 1
        reached, order = canonical(reached)
        number = self.numbers.get(reached)
        if number is None:
            check(reached)
            number = self.numbers[reached] = len(self.numbers)
            self.before += [[] for _ in range(self.workers)]
            waiting.append(reached)
        if worker >= 0:
            self.before[number * self.workers + order.index(worker)].append(source + worker)

    def look_for_dead_ends(self) -> None:
        """From every state, each worker by itself must be able to complete what is left."""
        good = bytearray(len(self.before))
        waiting: list[int] = []
        for state, number in self.numbers.items():
            if all(state.done):
                waiting += range(number * self.workers, (number + 1) * self.workers)
        for end in waiting:
            good[end] = 1
        while waiting:
            for source in self.before[waiting.pop()]:
                if not good[source]:
                    good[source] = 1
                    waiting.append(source)
        stuck = [
            state for state, number in self.numbers.items() if not all(good[number * self.workers :][: self.workers])
        ]
        if stuck:
            self.wrong.append(f"from {len(stuck)} states, a worker alone cannot complete all: {stuck[0]}")

    def _steps(self, state: State) -> Iterator[tuple[int, State]]:
        """All that can happen next, and by which worker: -1 if by none."""
        for number, worker in enumerate(state.workers):
            for doing, wanted in self._decisions(state.partition, number, worker):
                for by, reached in self._written(state, number, worker, doing, wanted):
                    yield -1 if doing == "expire" else by, reached  # a worker alone must get on without it
            if worker != Worker():
                yield number, put(state, number, Worker())  # it gives up, or is killed and another one starts
        for write in state.late:
            if self.has_unique_values or write.expected == state.partition:
                yield -1, self._applied(state, write)

    def _applied(self, state: State, write: Write) -> State:
        """The store applies a write. If values are unique, all that are late, and copies of this one, never will be."""
        applied = apply(state, write)
        return applied._replace(late=frozenset()) if self.has_unique_values else applied

    def _decisions(self, partition: Partition, number: int, worker: Worker) -> Iterator[tuple[str, Partition | None]]:
        """What a worker can do, and what it wants to write. None if it learns from the value that nothing is to do."""
        if worker.token:
            yield "renew", _shard_state.renew(partition, worker.shard, worker.token, 0)
            yield "complete", _shard_state.complete(partition, worker.shard, worker.token)
            yield "release", _shard_state.release(partition, worker.shard, worker.token)
            return
        if not worker.is_claiming and partition.held:  # a worker that waits gives back what has expired
            yield "expire", _shard_state.expire(partition, lambda held: held is partition.held[0])
        for expired in (None, *partition.held):  # no lease has expired, or this one has
            yield (
                "claim",
                _shard_state.claim(
                    partition,
                    self.shards,
                    str(number),
                    "",
                    is_empty=lambda shard: False,
                    is_expired=lambda held, expired=expired: held is expired,  # type: ignore[misc]
                ),
            )

    def _written(
        self, state: State, number: int, worker: Worker, doing: str, wanted: Partition | None
    ) -> Iterator[tuple[int, State]]:
        if wanted is None:
            yield number, put(state, number, answered(state.partition, number, worker, doing))
            return
        unsure = worker._replace(is_claiming=doing == "claim")
        write = Write(doing, worker.shard, worker.token, state.partition, wanted)
        applied = self._applied(put(state, number, unsure), write)
        yield number, applied  # and the answer is lost
        yield number, put(applied, number, answered(wanted, number, applied.workers[number], doing))
        # It is late. If too many are, one of them never arrives.
        for lost in (None,) if len(state.late) < self.most_late else state.late:
            yield number, put(state, number, unsure)._replace(late=(state.late - {lost}) | {write})


def answered(partition: Partition, number: int, worker: Worker, doing: str) -> Worker:
    """What a worker concludes from a value that it has read or written."""
    if doing == "claim":
        held = partition.find_claim(str(number))
        return Worker() if held is None else Worker(False, held.shard, held.token)
    if doing == "renew":
        return worker if partition.is_held(worker.shard, worker.token) else Worker()
    if doing == "complete" and bool(partition.is_completed(worker.token)) != worker.has_completed:
        raise Wrong(f"worker {number} hears the wrong answer to its complete of shard {worker.shard}")
    return Worker()


def put(state: State, number: int, worker: Worker) -> State:
    return state._replace(workers=(*state.workers[:number], worker, *state.workers[number + 1 :]))


def apply(state: State, write: Write) -> State:
    """The store applies a write."""
    newest, done, workers = list(state.newest), list(state.done), list(state.workers)
    if write.doing == "claim":
        held: Held = write.wanted.held[-1]
        if done[held.shard]:
            raise Wrong(f"shard {held.shard} is handed out after it was done")
        if held.token <= newest[held.shard]:
            raise Wrong(f"the token of shard {held.shard} does not grow")
        newest[held.shard] = held.token
    if write.doing == "complete":
        if done[write.shard]:
            raise Wrong(f"shard {write.shard} is completed twice")
        if newest[write.shard] != write.token:
            raise Wrong(f"shard {write.shard} is completed with an old token")
        done[write.shard] = True
        for number, worker in enumerate(workers):
            if (worker.shard, worker.token) == (write.shard, write.token):
                workers[number] = worker._replace(has_completed=True)
    return State(write.wanted, tuple(workers), state.late, tuple(newest), tuple(done))


def check(state: State) -> None:
    """Each shard is in exactly one place."""
    partition = state.partition
    for shard, is_done in enumerate(state.done):
        held = sum(each.shard == shard for each in partition.held)
        places = held + partition.waiting.count(shard) + (shard >= partition.next) + is_done
        if places != 1:
            raise Wrong(f"shard {shard} is in {places} places")


def canonical(state: State) -> tuple[State, tuple[int, ...]]:
    """The same state, with the smallest tokens in the same order, without what nobody looks at any more, and with the
    workers in a certain order. Also returns that order."""
    known = {worker.token for worker in state.workers} | {write.token for write in state.late}
    used = {0, *known, *state.newest, state.partition.token}
    used.update(held.token for held in state.partition.held)
    for write in state.late:
        for partition in (write.expected, write.wanted):
            used.add(partition.token)
            used.update(held.token for held in partition.held)
    small = {token: rank for rank, token in enumerate(sorted(used))}
    # Only a worker that claims looks for the name of its claim.
    claiming = [number for number, worker in enumerate(state.workers) if worker.is_claiming]
    workers = [worker._replace(token=small[worker.token]) for worker in state.workers]
    order = tuple(sorted(range(len(workers)), key=workers.__getitem__))
    newest = tuple(small[token] for token in state.newest)

    def named(claiming: tuple[int, ...]) -> tuple[Partition, frozenset[Write]]:
        """The partitions, if these workers have the places of those that claim."""
        names = {str(number): str(place) for place, number in enumerate(order)}
        names = {str(number): names[str(place)] for number, place in zip(claiming, sorted_claiming, strict=True)}

        def smaller(partition: Partition) -> Partition:
            held = tuple(
                Held(each.shard, small[each.token], 0, names.get(each.claim, ""), "", 0) for each in partition.held
            )
            recent = tuple(sorted(small[token] for token in partition.recent if token in known))
            return Partition(partition.next, small[partition.token], held, partition.waiting, recent)

        late = frozenset(
            Write(each.doing, each.shard, small[each.token], smaller(each.expected), smaller(each.wanted))
            for each in state.late
        )
        return smaller(state.partition), late

    sorted_claiming = [number for number in order if number in claiming]
    if len(claiming) < 2:
        partition, late = named(tuple(sorted_claiming))
    else:  # workers that claim are alike but for the names of their claims
        choices = [(named(choice), choice) for choice in permutations(sorted_claiming)]
        (partition, late), best = min(choices, key=lambda each: (each[0][0], sorted(each[0][1])))
        placed = dict(zip(sorted_claiming, best, strict=True))
        order = tuple(placed.get(number, number) for number in order)
    return State(partition, tuple(workers[number] for number in order), late, newest, state.done), order


def run(short: bool) -> list[Figure]:
    """Goes through all states."""
    figures = []
    for workers, shards, most_late, has_unique_values in SHORT_SIZES if short else SIZES:
        model = Model(workers, shards, most_late, has_unique_values)
        model.explore()
        if not model.wrong:
            model.look_for_dead_ends()
        what = f"states of {workers} workers, {shards} shards and up to {most_late} late writes ({model.steps:,} steps)"
        figures.append(
            Figure(what if has_unique_values else f"{what}, values not unique", len(model.numbers), model.wrong, 99)
        )
    return figures
