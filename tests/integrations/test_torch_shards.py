"""`ShardDataset` in a `DataLoader` with worker processes, and ranks of `torch.distributed` that end together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import MemoryStore, ShardPlan, ShardQueue
from children import LIMIT_SECONDS
from shards.hosting import Host, Remote

pytestmark = pytest.mark.framework


def number_of(record: bytes) -> int:
    return int(record)


@pytest.fixture
def records() -> anyrecord.Records:
    with anyrecord.create("records.ffr") as out:
        out.write_many(b"%d" % i for i in range(200))
    return anyrecord.open("records.ffr")


@pytest.fixture
def store() -> Iterator[Remote]:
    with Host(ctx=multiprocessing.get_context("spawn")) as host:
        yield Remote(host.store())  # type: ignore[attr-defined]


def test_one_process_without_workers(records: anyrecord.Records) -> None:
    from anyrecord.torch import ShardDataset
    from torch.utils.data import DataLoader

    queue = ShardQueue(ShardPlan(records, seed=1, shard_records=7), MemoryStore())
    loader: Any = DataLoader(ShardDataset(records, queue, decode=number_of), batch_size=16)
    found = []
    while queue.wait():
        for batch in loader:
            found += batch.tolist()
    assert sorted(found) == list(range(200))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_claim_for_themselves(records: anyrecord.Records, store: Remote, context: str) -> None:
    from anyrecord.torch import ShardDataset
    from torch.utils.data import DataLoader

    queue = ShardQueue(ShardPlan(records, seed=1, shard_records=7), store, lease_seconds=5)
    dataset = ShardDataset("records.ffr", queue, decode=number_of, batch_size=10)
    loader: Any = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=context)
    found: list[int] = []
    while queue.wait():
        for batch in loader:
            found += batch
    assert sorted(found) == list(range(200))
    assert queue.status().is_done


def test_a_loop_that_is_left_gives_the_shards_back(records: anyrecord.Records, store: Remote) -> None:
    from anyrecord.torch import ShardDataset
    from torch.utils.data import DataLoader

    queue = ShardQueue(ShardPlan(records, shard_records=50), store, lease_seconds=1000)
    loader: Any = DataLoader(ShardDataset(records, queue), batch_size=5, num_workers=2, multiprocessing_context="fork")
    batches = iter(loader)
    next(batches)
    del batches
    assert queue.status().doing == 0


def test_wrong_arguments_are_refused(records: anyrecord.Records) -> None:
    from anyrecord.torch import ShardDataset

    with pytest.raises(TypeError, match="queue must be a ShardQueue or a function that makes one, not list"):
        ShardDataset(records, [])  # type: ignore[arg-type]


def rank_of_a_job(rank: int, ranks: int, store: Remote, with_loader: bool) -> None:
    """Steps with the other ranks. A rank that ends earlier or later than others would hang here."""
    import torch
    import torch.distributed as dist
    from anyrecord.torch import ShardDataset, until_all_done
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="file://" + str(Path("meeting").absolute()), rank=rank, world_size=ranks
    )
    records = anyrecord.open("records.ffr").map(number_of)
    queue = ShardQueue(ShardPlan(records, seed=1, shard_records=9), store, lease_seconds=2)
    if with_loader:
        dataset: Any = ShardDataset(records, queue, batch_size=4)
        steps: Any = until_all_done(DataLoader(dataset, batch_size=None, num_workers=rank), queue)
    else:
        steps = anyrecord.elastic(records, queue, until="all_done", batch_size=4)
    count = 0
    found: list[int] = []
    for batch in steps:
        total = torch.tensor([0 if batch is None else len(batch)])
        dist.all_reduce(total)
        assert 0 < total.item() <= 4 * ranks
        count += 1
        found += batch or []
    Path(f"rank{rank}").write_text(" ".join(map(str, [count, *found])))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("with_loader", [False, True])
def test_ranks_of_torch_end_at_the_same_step(records: anyrecord.Records, store: Remote, with_loader: bool) -> None:
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=rank_of_a_job, args=(rank, 2, store, with_loader)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(LIMIT_SECONDS)
        if process.is_alive():
            process.kill()
        assert process.exitcode == 0
    parts = [[int(number) for number in Path(f"rank{rank}").read_text().split()] for rank in range(2)]
    assert parts[0][0] == parts[1][0]
    assert sorted(number for part in parts for number in part[1:]) == list(range(200))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_new_workers_of_each_pass_get_the_shard_of_a_dead_one(
    records: anyrecord.Records, store: Remote, context: str
) -> None:
    from anyrecord.torch import ShardDataset
    from torch.utils.data import DataLoader

    plan = ShardPlan(records, shard_records=100)
    lost = ShardQueue(plan, store, lease_seconds=1).claim()
    assert lost is not None
    queue = ShardQueue(plan, store, lease_seconds=1)
    dataset = ShardDataset("records.ffr", queue, decode=number_of, batch_size=10)
    loader: Any = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context=context)
    found: list[int] = []
    passes = 0
    while queue.wait() and passes < 10:
        passes += 1
        for batch in loader:
            found += batch
    assert sorted(found) == list(range(200))
    assert queue.is_done()
