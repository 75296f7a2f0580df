"""ElasticSampler under PyTorch's loaders, with real worker processes, and under torchdata's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import Permutation, Records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = [
    pytest.mark.framework,
    # More workers than this machine has cores is the point, not a mistake.
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    # torchdata's own use of torch.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
]

N = 150
State = dict[str, Any]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("torch") / "numbers.ffr"
    with anyrecord.create(path, durable=False) as out:
        out.write_many(b"%d" % i for i in range(N))
    return path


def order(n: int, seed: int = 1, epoch: int = 0) -> list[int]:
    return Permutation(n, seed, epoch).take(range(n)).tolist()


def in_turn(ranks: list[list[int]]) -> list[int]:
    return [x for x in chain.from_iterable(zip_longest(*ranks)) if x is not None]


def sampler(records: Records, rank: int = 0, world: int = 1, seed: int = 1, **keywords: Any) -> Any:
    from anyrecord.torch import ElasticSampler

    return ElasticSampler(records, seed=seed, tail="uneven", rank=rank, world=world, **keywords)


def loader(
    drawn_from: Any, batch_size: int | None, workers: int, start: str = "fork", stateful: bool = False, **keywords: Any
) -> Any:
    """A data loader of either kind."""
    from torch.utils.data import DataLoader
    from torchdata.stateful_dataloader import StatefulDataLoader

    kind: Any = StatefulDataLoader if stateful else DataLoader
    context = start if workers else None
    # `list` leaves the records as they are, and any start method can find it.
    collate = list if batch_size else bytes
    return kind(
        drawn_from.data,
        sampler=drawn_from,
        batch_size=batch_size,
        num_workers=workers,
        multiprocessing_context=context,
        collate_fn=collate,
        **keywords,
    )


def numbers(batches: Any) -> list[int]:
    return [int(record) for batch in batches for record in batch]


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("world", [1, 2, 8])
def test_the_order_is_the_same_for_any_number_of_workers_and_ranks(path: Path, workers: int, world: int) -> None:
    records = anyrecord.open(path)
    ranks = [numbers(loader(sampler(records, rank, world), 7, workers)) for rank in range(world)]
    assert in_turn(ranks) == order(N)


def interrupted(path: Path, n: int, start: str, segments: list[tuple[int, int, int, int]]) -> None:
    """Segments of (ranks, workers, batch size, steps), each continued by the next, which may be quite different."""
    from anyrecord.torch import ElasticLoader

    delivered: list[int] = []
    state: State | None = None
    for world, workers, size, steps in segments:
        got, states = [], set()
        for rank in range(world):
            records = anyrecord.open(path)[:n]
            elastic: Any = ElasticLoader(loader(sampler(records, rank, world), size, workers, start))
            if state is not None:
                elastic.load_state_dict(state)
            assert len(elastic) == -(-len(elastic.sampler) // size)
            batches: Iterator[Any] = iter(elastic)
            got.append(numbers(islice(batches, steps)))
            states.add(json.dumps(elastic.state_dict()))
            batches.close()  # type: ignore[attr-defined]  # a generator: its workers go
        delivered += in_turn(got)
        assert len(states) == 1, "every rank says the same"
        state = json.loads(states.pop())
        assert state is not None
        assert state["position"] == len(delivered)
    assert delivered == order(n)


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), n=st.integers(1, N))
def test_what_is_delivered_before_and_after_is_the_epoch(path: Path, data: st.DataObject, n: int) -> None:
    numbers_of = st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(1, 20), st.integers(0, 4))
    segments = data.draw(st.lists(numbers_of, max_size=3))
    world, workers, size, _ = data.draw(numbers_of)
    interrupted(path, n, "fork", [*segments, (world, workers, size, 1 + n)])


def test_spawned_workers_continue_forked_ones(path: Path) -> None:
    interrupted(path, N, "fork", [(2, 2, 8, 3), (1, 0, 5, 4), (1, 1, 16, N)])
    interrupted(path, N, "spawn", [(1, 2, 8, 3), (2, 1, 16, N)])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [8, None])
def test_a_stateful_loader_resumes_itself(path: Path, workers: int, batch_size: int | None) -> None:
    records = anyrecord.open(path)
    for steps in (0, 1, 5, 18):
        first = loader(sampler(records), batch_size, workers, stateful=True)
        it = iter(first)
        before = list(islice(it, steps))
        state = first.state_dict()
        del it
        second = loader(sampler(records), batch_size, workers, stateful=True)
        second.load_state_dict(state)
        both = before + list(second)
        assert (numbers(both) if batch_size else [int(record) for record in both]) == order(N)


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    workers=st.integers(0, 2),
    size=st.integers(1, 20),
    steps=st.integers(0, 10),
    world=st.integers(1, 3),
    next_workers=st.integers(0, 2),
    next_size=st.integers(1, 20),
)
def test_the_state_of_a_stateful_loader_is_good_for_any_loader(
    path: Path, workers: int, size: int, steps: int, world: int, next_workers: int, next_size: int
) -> None:
    from anyrecord.torch import sampler_state

    records = anyrecord.open(path)
    first = loader(sampler(records), size, workers, stateful=True)
    it = iter(first)
    before = numbers(islice(it, steps))
    state = sampler_state(first.state_dict())
    del it
    assert state["position"] == len(before)
    after = []
    for rank in range(world):
        drawn_from = sampler(records, rank, world)
        drawn_from.load_state_dict(state)
        after.append(numbers(loader(drawn_from, next_size, next_workers, stateful=rank == 0)))
    assert before + in_turn(after) == order(N)


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_under_a_stateful_loader_follow_each_other(path: Path, workers: int) -> None:
    """The loop that everybody writes, stopped after any number of steps, also exactly at the end of an epoch."""
    records = anyrecord.open(path)[:20]

    def train(state: State | None, steps: int, begin: int = 0) -> tuple[list[int], State, int]:
        drawn_from = sampler(records)
        batches = loader(drawn_from, 8, workers, stateful=True)
        if state is not None:
            batches.load_state_dict(state)
        seen: list[int] = []
        for epoch in range(begin, 3):
            drawn_from.set_epoch(epoch)
            for batch in batches:
                seen += numbers([batch])
                steps -= 1
                if steps == 0:
                    return seen, batches.state_dict(), epoch
        return seen, batches.state_dict(), 3

    whole = [x for epoch in range(3) for x in order(20, epoch=epoch)]
    assert train(None, 1000)[0] == whole
    for stop in range(1, 9):
        before, state, epoch = train(None, stop)
        assert before + train(state, 1000, epoch)[0] == whole, f"stopped after {stop} steps"


def test_a_checkpoint_after_an_epoch_leads_to_the_next(path: Path) -> None:
    records = anyrecord.open(path)
    for stateful_workers in (0, 2):
        first = loader(sampler(records), 8, stateful_workers, stateful=True)
        assert numbers(first) == order(N)
        drawn_from = sampler(records)
        second = loader(drawn_from, 8, stateful_workers, stateful=True)
        second.load_state_dict(first.state_dict())
        drawn_from.set_epoch(1)
        assert numbers(second) == order(N, epoch=1)
        assert numbers(second) == order(N, epoch=2)


def test_a_state_behind_the_last_batch_is_refused(path: Path) -> None:
    from anyrecord.torch import sampler_state
    from torchdata.stateful_dataloader import StatefulDataLoader

    drawn_from = sampler(anyrecord.open(path))
    batches: Any = StatefulDataLoader(
        drawn_from.data,
        sampler=drawn_from,
        batch_size=8,
        num_workers=1,
        multiprocessing_context="fork",
        collate_fn=list,
        snapshot_every_n_steps=3,
    )
    it = iter(batches)
    next(it)
    with pytest.raises(ValueError, match="snapshot_every_n_steps=1"):
        sampler_state(batches.state_dict())
    del it
    with pytest.raises(ValueError, match="no state of an ElasticSampler"):
        sampler_state({"_snapshot": {}})


def test_it_is_a_torch_sampler_in_the_place_of_the_distributed_one(path: Path) -> None:
    from anyrecord.torch import ElasticLoader, ElasticSampler
    from torch.utils.data import BatchSampler, DataLoader, Sampler
    from torch.utils.data.distributed import DistributedSampler

    records = anyrecord.open(path)
    ours = ElasticSampler(records, seed=1, rank=1, world=4)
    theirs: Any = DistributedSampler(records, num_replicas=4, rank=1, seed=1)
    assert isinstance(ours, Sampler)
    assert len(ours) == len(theirs) == len(list(ours)) == len(list(theirs))
    ours.set_epoch(3)
    assert list(ours) == [*order(N, epoch=3)[1::4], order(N, epoch=3)[3]][: len(ours)]
    in_batches = BatchSampler(ElasticSampler(records, seed=1), 16, drop_last=True)
    elastic = ElasticLoader(DataLoader(records, batch_sampler=in_batches, collate_fn=list))
    it = iter(elastic)
    next(it)
    assert elastic.state_dict()["position"] == 16
    assert len(list(it)) == N // 16 - 1
    assert elastic.state_dict()["position"] == N, "what drop_last dropped is dropped"


def test_persistent_workers_go_on_to_the_next_epoch(path: Path) -> None:
    from torch.utils.data import DataLoader

    drawn_from = sampler(anyrecord.open(path))
    batches: Any = DataLoader(
        drawn_from.data,
        sampler=drawn_from,
        batch_size=16,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
        collate_fn=list,
    )
    for epoch in range(3):
        drawn_from.set_epoch(epoch)
        assert numbers(batches) == order(N, epoch=epoch)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("size", "drop_last"), [(50, False), (16, False), (16, True)])
def test_an_epoch_is_over_when_its_last_batch_was_delivered(
    path: Path, workers: int, size: int, drop_last: bool
) -> None:
    """Whether or not anybody asks for one more."""
    from anyrecord.torch import ElasticLoader

    elastic: Any = ElasticLoader(loader(sampler(anyrecord.open(path)), size, workers, drop_last=drop_last))
    for epoch in range(3):
        got = [batch for _, batch in zip(range(len(elastic)), elastic, strict=False)]
        assert numbers(got) == order(N, epoch=epoch)[: len(elastic) * size]
        assert elastic.state_dict()["epoch"] == epoch


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("is_held", [False, True])
def test_an_epoch_that_was_left_begins_again_however_far_workers_had_read(
    path: Path, workers: int, is_held: bool
) -> None:
    from anyrecord.torch import ElasticLoader

    ahead: dict[str, Any] = {"prefetch_factor": 100} if workers else {}  # they read all
    elastic: Any = ElasticLoader(loader(sampler(anyrecord.open(path)), 16, workers, **ahead))
    held = []
    for epoch in range(2):
        for _ in range(2):
            it = iter(elastic)
            assert numbers(islice(it, 2)) == order(N, epoch=epoch)[:32]
            assert elastic.state_dict()["position"] == 32
            held += [it] if is_held else []
            del it
        assert numbers(elastic) == order(N, epoch=epoch)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_failed_before_its_first_batch_begins_again(path: Path, workers: int) -> None:
    from anyrecord.torch import ElasticLoader

    ahead: dict[str, Any] = {"prefetch_factor": 100} if workers else {}
    batches = loader(sampler(anyrecord.open(path)), 16, workers, **ahead)
    elastic: Any = ElasticLoader(batches)
    batches.collate_fn = fails_to_collate
    with pytest.raises(ZeroDivisionError):
        next(iter(elastic))
    batches.collate_fn = list
    assert numbers(elastic) == order(N)


def fails_to_collate(samples: list[bytes]) -> None:
    raise ZeroDivisionError


def test_rank_and_world_come_from_the_process_group(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist
    from anyrecord.torch import ElasticSampler
    from torch.testing._internal.distributed.fake_pg import FakeStore

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    ours = ElasticSampler(anyrecord.open(path), seed=1)
    assert len(ours) == N // 2
    dist.init_process_group("fake", rank=2, world_size=5, store=FakeStore())
    try:
        assert len(ours) == N // 5
        assert list(ours) == order(N)[2::5]
    finally:
        dist.destroy_process_group()
    assert len(ours) == N // 2


def test_the_loops_of_the_guide_run(path: Path) -> None:
    """The examples with PyTorch in docs/order.md, with everything that they leave to the reader."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    guide = (Path(__file__).parents[2] / "docs" / "order.md").read_text()
    with_loader, with_stateful = (
        block for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "from anyrecord.torch" in block
    )
    assert "DataLoader(records, batch_size=32" in with_loader
    # Quick enough for a test, and bytes are left as they are.
    with_loader = with_loader.replace("num_workers=4", "num_workers=2, collate_fn=list, multiprocessing_context='fork'")
    seen: list[int] = []
    saved: list[State] = []

    def run(checkpoint: State | None, stop: int) -> None:
        def train(batch: list[bytes]) -> None:
            seen.extend(map(int, batch))

        def save(state: State) -> None:
            saved.append(state)
            if len(saved) == stop:
                raise KeyboardInterrupt

        reader = {"records": anyrecord.open(path), "train": train, "save": save, "time_to_save": lambda: True}
        exec(with_loader, {**reader, "checkpoint": checkpoint, "epochs": 2})

    with pytest.raises(KeyboardInterrupt):
        run(None, stop=7)
    run(saved[-1], stop=-1)
    assert seen == order(N, 42) + order(N, 42, 1)

    drawn_from = sampler(anyrecord.open(path), seed=42)
    first = loader(drawn_from, 8, 0, stateful=True)
    it = iter(first)
    before = numbers(islice(it, 3))
    with_stateful = with_stateful.replace("num_workers=8", "num_workers=0, collate_fn=list")
    names = {"records": anyrecord.open(path), "checkpoint": {"loader": first.state_dict()}}
    exec(with_stateful, names := {**names, "StatefulDataLoader": StatefulDataLoader})
    assert before + numbers(names["loader"]) == order(N, 42)


@pytest.mark.parametrize(("module", "name"), [("torch", "PyTorch"), ("numpy", "numpy")])
def test_without_torch_or_numpy_the_message_says_what_to_install(module: str, name: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None\nimport anyrecord.torch"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert f"anyrecord.torch needs {name}: pip install 'anyrecord[torch]'" in found.stderr
