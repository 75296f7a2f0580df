"""ElasticSampler: one order, dealt to any number of ranks, and one number that says how far they are."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain, zip_longest
from typing import Any, get_args

import anyrecord
import pytest
from anyrecord import Records
from anyrecord.sampling import ElasticLoader, ElasticSampler, Share, Tail
from hypothesis import given, settings
from hypothesis import strategies as st

from . import reference


def in_turn(ranks: list[list[int]]) -> list[int]:
    """What all ranks had, in the order of the epoch: they take turns."""
    return [x for x in chain.from_iterable(zip_longest(*ranks)) if x is not None]


class Loader:
    """A loader that takes record numbers `ahead` batches before it delivers them, as workers do."""

    def __init__(self, sampler: ElasticSampler, batch_size: int, ahead: int = 0) -> None:
        self.sampler, self.batch_size, self.ahead = sampler, batch_size, ahead

    def __iter__(self) -> Iterator[list[int]]:
        ready: list[list[int]] = []
        numbers = iter(self.sampler)
        while True:
            while len(ready) <= self.ahead and (
                batch := [x for _, x in zip(range(self.batch_size), numbers, strict=False)]
            ):
                ready.append(batch)
            if not ready:
                return
            yield ready.pop(0)

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.batch_size)


@settings(deadline=None, max_examples=200)
@given(data=st.data(), n=st.integers(0, 120), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_what_is_delivered_before_and_after_is_the_epoch(data: st.DataObject, n: int, seed: int, epoch: int) -> None:
    """Any number of interruptions, each followed by another number of ranks, of workers, and another batch size."""
    order = reference.Permutation(n, seed, epoch).all()
    delivered: list[int] = []
    state: dict[str, int] | None = None
    for _ in range(data.draw(st.integers(0, 4), "interruptions")):
        world, size = data.draw(st.integers(1, 9), "world"), data.draw(st.integers(1, 12), "batch size")
        loaders = [
            _loader(n, seed, epoch, rank, world, size, data.draw(st.integers(0, 5)), state) for rank in range(world)
        ]
        steps = data.draw(st.integers(0, n // (world * size) + 1), "steps")
        got: list[list[int]] = [[] for _ in loaders]
        for loader, had in zip(loaders, got, strict=True):
            batches = iter(loader)
            for _, batch in zip(range(steps), batches, strict=False):
                had += batch
            del batches
        delivered += in_turn(got)
        states = {json.dumps(loader.state_dict()) for loader in loaders}
        assert len(states) == 1, "every rank says the same"
        state = json.loads(states.pop())
        assert state["position"] == len(delivered)
    world, size = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 12))
    last = [_loader(n, seed, epoch, rank, world, size, 2, state) for rank in range(world)]
    delivered += in_turn([[x for batch in loader for x in batch] for loader in last])
    assert delivered == order
    assert all(loader.state_dict()["position"] == n for loader in last)


def _loader(
    n: int, seed: int, epoch: int, rank: int, world: int, size: int, ahead: int, state: dict[str, int] | None
) -> ElasticLoader[list[int]]:
    sampler = ElasticSampler(n, seed=seed, tail="uneven", rank=rank, world=world)
    loader = ElasticLoader(Loader(sampler, size, ahead))
    if state is not None:
        loader.load_state_dict(state)
    loader.set_epoch(epoch)
    return loader


@given(n=st.integers(0, 100), world=st.integers(1, 12), start=st.integers(0, 100), tail=st.sampled_from(get_args(Tail)))
def test_the_tail_is_what_was_asked_for(n: int, world: int, start: int, tail: Tail) -> None:
    order = reference.Permutation(n, 1, 0).all()
    start = min(start, n)
    samplers = [ElasticSampler(n, seed=1, tail=tail, rank=rank, world=world) for rank in range(world)]
    state = {**samplers[0].state_dict(), "position": start}
    for sampler in samplers:
        sampler.load_state_dict(state)
    lengths = [len(sampler) for sampler in samplers]
    ranks = [list(sampler) for sampler in samplers]
    assert lengths == [len(rank) for rank in ranks]
    together, rest = in_turn(ranks), order[start:]
    if tail == "uneven":
        assert together == rest
        assert max(lengths) - min(lengths) <= 1
        return
    assert len(set(lengths)) == 1
    if tail == "drop":
        assert together == rest[: len(rest) // world * world]
    else:
        padding = len(together) - len(rest)
        assert padding < world
        assert together[: len(rest)] == rest
        assert together[len(rest) :] == [order[i % n] for i in range(padding)]
    assert all(sampler.state_dict()["position"] == n for sampler in samplers)


@pytest.mark.parametrize("world", [1, 2, 8])
def test_the_order_is_the_same_for_any_number_of_ranks(world: int) -> None:
    ranks = [list(ElasticSampler(1000, seed=9, tail="uneven", rank=rank, world=world)) for rank in range(world)]
    assert in_turn(ranks) == reference.Permutation(1000, 9, 0).all()


def test_the_length_is_that_of_the_next_iteration_at_every_moment() -> None:
    sampler = ElasticSampler(103, seed=1, rank=0, world=2)

    def right() -> int:
        copy = pickle.loads(pickle.dumps(sampler))
        assert len(copy) == len(list(copy))
        return len(sampler)

    assert right() == 52
    it = iter(sampler)
    for _ in range(10):
        next(it)
    assert right() == 52, "an iteration that begins now begins at the beginning"
    state = sampler.state_dict()
    sampler.load_state_dict(state)
    assert (state["position"], right()) == (20, 42)
    assert len(list(sampler)) == 42
    assert right() == 52, "the next epoch"
    sampler.rank, sampler.world = 1, 4
    assert right() == 26


def test_an_epoch_at_its_end_is_followed_by_the_next() -> None:
    sampler = ElasticSampler(50, seed=1)
    epochs = [list(sampler) for _ in range(3)]
    assert epochs == [reference.Permutation(50, 1, epoch).all() for epoch in range(3)]
    assert sampler.state_dict() == {**sampler.state_dict(), "epoch": 2, "position": 50}
    sampler.set_epoch(2)
    assert list(sampler) == epochs[2], "asked for again"
    sampler.set_epoch(0)
    assert list(sampler) == epochs[0]


def test_a_loop_over_epochs_resumes_wherever_it_was_stopped() -> None:
    """The loop that everybody writes, stopped after any number of steps, also exactly at the end of an epoch."""

    def train(state: dict[str, int] | None, steps: int) -> tuple[list[int], dict[str, int]]:
        sampler = ElasticSampler(10, seed=3, rank=0, world=1)
        loader = ElasticLoader(Loader(sampler, 4, ahead=2))
        if state is not None:
            loader.load_state_dict(state)
        seen: list[int] = []
        for epoch in range(sampler.epoch, 3):
            loader.set_epoch(epoch)
            for batch in loader:
                seen += batch
                steps -= 1
                if steps == 0:
                    return seen, loader.state_dict()
        return seen, loader.state_dict()

    whole, _ = train(None, 1000)
    assert len(whole) == 30
    for stop in range(1, 10):
        before, state = train(None, stop)
        after, _ = train(json.loads(json.dumps(state)), 1000)
        assert before + after == whole, f"stopped after {stop} steps"


def test_set_epoch_to_the_current_one_keeps_the_position() -> None:
    sampler = ElasticSampler(50, seed=1)
    it = iter(sampler)
    first = [next(it) for _ in range(20)]
    resumed = ElasticSampler(50, seed=1)
    resumed.load_state_dict(sampler.state_dict())
    resumed.set_epoch(0)
    assert first + list(resumed) == reference.Permutation(50, 1, 0).all()
    resumed.load_state_dict(sampler.state_dict())
    resumed.set_epoch(1)
    assert list(resumed) == reference.Permutation(50, 1, 1).all()


def test_the_rank_is_found_when_an_iteration_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    sampler = ElasticSampler(100, seed=1)
    assert len(sampler) == 100
    everything = list(sampler)
    sampler.set_epoch(0)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert len(sampler) == 25
    assert list(sampler) == everything[1::4]
    # What is said counts more.
    assert list(ElasticSampler(100, seed=1, rank=0, world=2)) == everything[0::2]
    monkeypatch.setenv("RANK", "4")
    with pytest.raises(ValueError, match="the environment variables RANK='4' and WORLD_SIZE='4' are not valid"):
        len(sampler)
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(ValueError, match="whole numbers"):
        len(sampler)


def test_windows_and_plain_order(numbers: Records) -> None:
    blocks = ElasticSampler(numbers, seed=4, window=3, block=16)
    assert list(blocks) == reference.block_shuffle(1000, 4, 0, 16, 3)
    assert list(ElasticSampler(200, seed=4, window=3, block=16)) == reference.block_shuffle(200, 4, 0, 16, 3)
    assert list(ElasticSampler(numbers.map(int), seed=4, window=3, block=16)) == list(
        ElasticSampler(numbers, seed=4, window=3, block=16)
    )
    plain = ElasticSampler(10, shuffle=False, rank=1, world=3, tail="pad")
    assert list(plain) == [1, 4, 7, 0]
    assert [int(numbers[i]) for i in ElasticSampler(numbers, seed=4)] == [int(r) for r in numbers.shuffle(4)]


def test_the_state_of_another_sampler_is_refused() -> None:
    state = ElasticSampler(100, seed=1).state_dict()
    assert set(state) == {"epoch", "position", "length", "order"}
    with pytest.raises(ValueError, match="that one has 100 records, this one 99"):
        ElasticSampler(99, seed=1).load_state_dict(state)
    for other in (
        ElasticSampler(100, seed=2),
        ElasticSampler(100, shuffle=False),
        ElasticSampler(100, seed=1, window=2, block=5),
    ):
        with pytest.raises(ValueError, match="another order"):
            other.load_state_dict(state)
    # The tail, the ranks and the epoch may be others.
    ElasticSampler(100, seed=1, tail="drop", rank=3, world=4).load_state_dict(state)
    wrong: list[Any] = [{}, None, 5, {"position": 1}, {**state, "position": 101}, {**state, "position": -1}]
    for bad in wrong:
        with pytest.raises(ValueError, match="not the state of a sampler"):
            ElasticSampler(100, seed=1).load_state_dict(bad)


def test_wrong_arguments_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"tail": "wrap"},
        {"rank": 1},
        {"world": 1},
        {"rank": 1, "world": 1},
        {"rank": -1, "world": 1},
        {"seed": -1},
        {"window": 3},
        {"block": 3},
        {"shuffle": False, "window": 3, "block": 3},
    ]
    for keywords in wrong:
        with pytest.raises(ValueError):
            ElasticSampler(10, **keywords)
    with pytest.raises(ValueError):
        ElasticSampler(-1)
    with pytest.raises(TypeError, match="ElasticSampler"):
        ElasticLoader([1, 2, 3])
    with anyrecord.create("one.ffr") as out:
        out.write_many([b"x", b"y"])
    records = anyrecord.open("one.ffr")
    with pytest.raises(ValueError, match="holds 1 record"):
        ElasticSampler(records, window=2)


def test_a_share_of_more_records_than_memory() -> None:
    sampler = ElasticSampler(10**12, seed=1, rank=5, world=64)
    assert len(sampler) == 10**12 // 64
    it = iter(sampler)
    numbers = [next(it) for _ in range(3000)]
    assert numbers[:3] == [reference.Permutation(10**12, 1, 0)(p) for p in (5, 69, 133)]
    assert max(Counter(numbers).values()) == 1
    resumed = ElasticSampler(10**12, seed=1, rank=0, world=8)
    resumed.load_state_dict(sampler.state_dict())
    assert next(iter(resumed)) == reference.Permutation(10**12, 1, 0)(3000 * 64)
    assert len(pickle.dumps(sampler)) < 1000


def test_a_share_is_a_value() -> None:
    share = Share(epoch=0, start=4, length=10, rank=1, world=4, tail="pad")
    assert (len(share), share.position_after(1), share.position_after(2)) == (2, 8, 10)
    assert [list(r) for r in share.positions(0, 2)] == [[5, 9]]
    assert [list(r) for r in Share(0, 4, 10, 3, 4, "pad").positions(0, 2)] == [[7], [1]]


def test_importing_anyrecord_imports_no_framework() -> None:
    code = "import anyrecord, anyrecord.sampling, sys; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == "[]"
