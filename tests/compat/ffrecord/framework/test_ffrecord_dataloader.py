"""`DataLoader`: workers of every kind, skipping, and a training run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as torch_data
from anyrecord.compat.ffrecord.torch import DataLoader, Subset

from compat.ffrecord.framework.ffrecord_datasets import Numbers, OwnNumbers, Workers, write_numbers

pytestmark = [pytest.mark.framework, pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write_numbers(tmp_path / "a.ffr", 22)


def batches(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def samples(loader: Any) -> list[int]:
    return [sample for batch in batches(loader) for sample in batch]


EXPECTED = [list(range(0, 5)), list(range(5, 10)), list(range(10, 15)), list(range(15, 20)), [20, 21]]


def test_without_workers(path: str) -> None:
    dataset = Numbers(path)
    loader = DataLoader(dataset, batch_size=5, prefetch_factor=2)
    assert isinstance(loader, torch_data.DataLoader)
    assert len(loader) == 5
    assert batches(loader) == EXPECTED
    assert dataset.log == EXPECTED  # one read for each batch
    assert loader.batch_size == 5
    assert type(loader.batch_sampler) is torch_data.BatchSampler


@pytest.mark.parametrize(
    ("kind", "method"), [(Numbers, "fork"), (OwnNumbers, "fork"), (Numbers, "spawn"), (OwnNumbers, "forkserver")]
)
def test_workers_of_every_kind(path: str, kind: Any, method: str) -> None:
    dataset = kind(path)
    assert dataset[[1, 2, 3]] == [1, 2, 3]  # the parent may have read before
    loader = DataLoader(
        dataset, batch_size=5, num_workers=2, multiprocessing_context=method, persistent_workers=method != "fork"
    )  # a spawned worker takes seconds to import PyTorch
    assert batches(loader) == EXPECTED
    loader.set_step(3)
    assert batches(loader) == EXPECTED[3:]


def test_batches_are_read_whole_in_the_workers(path: str) -> None:
    loader = DataLoader(Workers(path), batch_size=5, num_workers=2, collate_fn=list)
    found = list(loader)
    assert [batch[0][1] for batch in found] == [5, 5, 5, 5, 2]
    assert os.getpid() not in {batch[0][0] for batch in found}


def test_more_workers_than_the_original_could_have(path: str) -> None:
    loader = DataLoader(Numbers(path), batch_size=4, num_workers=18)
    assert samples(loader) == list(range(22))


def test_shuffle_is_pytorchs(path: str) -> None:
    ours = DataLoader(Numbers(path), batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(7))
    theirs = torch_data.DataLoader(
        Numbers(path), batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(7)
    )
    assert batches(ours) == batches(theirs) != EXPECTED


def test_set_step_skips_without_reading(path: str) -> None:
    dataset = Numbers(path)
    loader = DataLoader(dataset, batch_size=5)
    loader.set_step(3)
    assert len(loader) == 2
    for _ in range(2):  # in every epoch until it is set again
        assert batches(loader) == EXPECTED[3:]
    assert dataset.log == EXPECTED[3:] * 2
    loader.set_step(0)
    assert len(loader) == 5
    assert batches(loader) == EXPECTED


@pytest.mark.parametrize("step", [-1, 5, 6])
def test_steps_out_of_range(path: str, step: int) -> None:
    loader = DataLoader(Numbers(path), batch_size=5)
    loader.set_step(2)
    with pytest.raises(AssertionError):
        loader.set_step(step)
    loader.set_step(4)
    assert batches(loader) == EXPECTED[4:]


def test_the_range_is_that_of_the_whole_epoch(path: str) -> None:
    loader = DataLoader(Numbers(path), batch_size=5)
    loader.set_step(4)
    loader.set_step(3)  # not of what is left
    assert len(loader) == 2


def test_a_shuffled_epoch_is_skipped_in_its_own_order(path: str) -> None:
    def make() -> DataLoader:
        return DataLoader(Numbers(path), 5, True, generator=torch.Generator().manual_seed(1))

    whole, resumed = make(), make()
    resumed.set_step(2)
    assert batches(resumed) == batches(whole)[2:]


def test_persistent_workers_see_a_new_step(path: str) -> None:
    loader = DataLoader(Numbers(path), batch_size=5, num_workers=2, persistent_workers=True)
    assert batches(loader) == EXPECTED
    loader.set_step(2)
    assert batches(loader) == EXPECTED[2:]
    loader.set_step(0)
    assert batches(loader) == EXPECTED


def test_not_skippable(path: str) -> None:
    loader = DataLoader(Numbers(path), batch_size=5, skippable=False)
    with pytest.raises(AssertionError, match="This dataloader is not skippable"):
        loader.set_step(1)
    assert batches(loader) == EXPECTED


def test_without_batches_an_item_is_a_list_of_one(path: str) -> None:
    with pytest.raises(AssertionError):
        DataLoader(Numbers(path), batch_size=None)
    loader = DataLoader(Numbers(path), batch_size=None, skippable=False)
    assert [list(item) for item in loader] == [[i] for i in range(22)]


def test_samplers(path: str) -> None:
    sampler = torch_data.SubsetRandomSampler([3, 1, 2])
    assert sorted(samples(DataLoader(Numbers(path), 2, sampler=sampler))) == [1, 2, 3]
    loader = DataLoader(Numbers(path), batch_sampler=[[1, 2], [3], [5, 5]])
    assert batches(loader) == [[1, 2], [3], [5, 5]]
    loader.set_step(1)
    assert batches(loader) == [[3], [5, 5]]
    with_repeats = torch_data.RandomSampler(Numbers(path), replacement=True, num_samples=50)
    concat = Numbers(path) + Numbers(path)
    assert len(samples(DataLoader(concat, 7, sampler=with_repeats))) == 50
    assert len(DataLoader(Numbers(path), 5, drop_last=True)) == 4


def test_other_data_sets(path: str) -> None:
    split = torch_data.random_split(Numbers(path), [20, 2])[0]
    assert len(samples(DataLoader(split, 5, num_workers=1))) == 20
    assert batches(DataLoader(Subset(Numbers(path), range(3, 6)), 2)) == [[3, 4], [5]]
    plain = DataLoader(list(range(4)), 2)
    plain.set_step(1)
    assert batches(plain) == [[2, 3]]
    assert [list(item) for item in DataLoader([[1], [2]], batch_size=None, skippable=False)] == [[1], [2]]


class Stream(torch_data.IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(4))


def test_streams_pass_through_and_cannot_skip() -> None:
    loader = DataLoader(Stream(), batch_size=2)
    assert batches(loader) == [[0, 1], [2, 3]]
    with pytest.raises(AssertionError, match="not skippable"):
        loader.set_step(1)


def test_pytorch_stays_as_it_is() -> None:
    program = (
        "import torch.utils.data as data, torch.utils.data.dataloader as loader\n"
        "from torch.utils.data._utils import fetch, worker\n"
        "def names(): return [(k, id(v)) for m in (data, loader, fetch, worker, loader._DatasetKind)\n"
        "                     for k, v in sorted(vars(m).items())]\n"
        "before = names()\n"
        "import anyrecord.compat.ffrecord.torch\n"
        "assert names() == before\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_training_learns(tmp_path: Path) -> None:
    from anyrecord.compat.ffrecord import FileWriter

    from compat.ffrecord.framework.ffrecord_training import Pairs

    rng = np.random.default_rng(0)
    weights = np.array([2.0, -1.0, 0.5], np.float32)
    with FileWriter(tmp_path / "train.ffr", 256) as writer:
        for _ in range(256):
            features = rng.normal(size=3).astype(np.float32)
            writer.write_one(np.append(features, features @ weights).astype(np.float32))

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Pairs(tmp_path / "train.ffr"), batch_size=32, shuffle=True, num_workers=2)
    losses = []
    for _epoch in range(6):
        for features, target in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(features).squeeze(1), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.01 < losses[0]
    assert np.allclose(model.weight.detach().numpy()[0], weights, atol=0.2)
