"""`Dataset`, `Subset`, `ConcatDataset` and `ReaderRegistry`; PyTorch's own classes on them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.utils.data as torch_data
from anyrecord.compat.ffrecord import FileReader
from anyrecord.compat.ffrecord.torch import ConcatDataset, Dataset, ReaderRegistry, Subset

from compat.ffrecord.framework.ffrecord_datasets import Numbers, OwnNumbers, write_numbers

pytestmark = pytest.mark.framework


@pytest.fixture
def dataset(tmp_path: Path) -> Numbers:
    return Numbers(write_numbers(tmp_path / "a.ffr", 10))


@pytest.fixture
def other(tmp_path: Path) -> Numbers:
    return Numbers(write_numbers(tmp_path / "b.ffr", 5, first=100))


def test_lists_and_tuples_are_read_at_once(dataset: Numbers, tmp_path: Path) -> None:
    assert len(dataset) == 10
    assert dataset[[3, 1, 3]] == [3, 1, 3]
    assert dataset[(2, 0)] == [2, 0]
    assert dataset[[]] == []
    assert dataset.log == [[3, 1, 3], [2, 0], []]
    assert isinstance(dataset.reader, FileReader)
    assert dataset.fnames == str(tmp_path / "a.ffr")
    assert isinstance(dataset, torch_data.Dataset)


@pytest.mark.parametrize("bad", [np.array([1, 2]), range(3), "1", None, 1.0, {1}, slice(3)])
def test_anything_else_is_a_type_error(dataset: Numbers, bad: Any) -> None:
    for data in (dataset, Subset(dataset, [1, 2, 3]), ConcatDataset([dataset])):
        with pytest.raises(TypeError, match="indices must be a list of index"):
            data[bad]


def test_one_index_gives_one_sample(dataset: Numbers) -> None:
    assert dataset[3] == 3
    assert dataset[np.int64(4)] == 4
    assert dataset[-1] == 9
    assert list(dataset) == list(range(10))  # ends with an IndexError
    for bad in (10, -11):
        with pytest.raises(IndexError):
            dataset[bad]


def test_errors_of_the_reader_come_through(dataset: Numbers) -> None:
    with pytest.raises(RuntimeError, match=r"'index < n' failed. index >= number of samples \(10 >= 10\)"):
        dataset[[1, 10]]


def test_process_must_be_defined(tmp_path: Path) -> None:
    plain = Dataset([write_numbers(tmp_path / "a.ffr", 3)], check_data=False)
    assert len(plain) == 3
    assert plain.reader.check_data is False
    with pytest.raises(NotImplementedError):
        plain[[0]]


def test_pickle(dataset: Numbers, other: Numbers) -> None:
    for data in (dataset, Subset(dataset, [3, 4]), dataset + other):
        again = pickle.loads(pickle.dumps(data))
        assert again[[1, 0]] == data[[1, 0]]


def test_subset(dataset: Numbers) -> None:
    subset = Subset(dataset, [9, 7, 5])
    assert len(subset) == 3
    assert subset[[2, 0, 0]] == [5, 9, 9]
    assert subset[[-1]] == [5]
    assert subset[1] == 7
    assert dataset.log[0] == [5, 9, 9]
    assert Subset(subset, (2, 1))[[0, 1]] == [5, 7]
    with pytest.raises(IndexError):
        subset[[3]]


def test_concat_reads_each_data_set_once(dataset: Numbers, other: Numbers) -> None:
    both = dataset + other
    assert isinstance(both, ConcatDataset)
    assert len(both) == 15
    assert both[[0, 0, 1, 10, 10]] == [0, 0, 1, 100, 100]
    assert both[[14, 9, 10, 3, 14]] == [104, 9, 100, 3, 104]
    assert both[[-1, -15]] == [104, 0]
    assert both[11] == 101
    assert (dataset.log[:2], other.log[:2]) == ([[0, 0, 1], [9, 3]], [[0, 0], [4, 0, 4]])
    assert both.cumulative_sizes == [10, 15]
    assert (both + dataset)[[15, 14]] == [0, 104]
    assert both[[]] == []


def test_concat_errors(dataset: Numbers, other: Numbers) -> None:
    both = ConcatDataset(data for data in (dataset, other))
    with pytest.raises(ValueError, match="absolute value of index should not exceed dataset length"):
        both[[-16]]
    with pytest.raises(IndexError):
        both[[15]]
    with pytest.raises(AssertionError, match="datasets should not be an empty iterable"):
        ConcatDataset([])
    with pytest.raises(AssertionError):
        ConcatDataset([[1, 2, 3]])  # type: ignore[list-item]


class Holder(ReaderRegistry):
    reader: Any
    inner: Any


def test_registry(dataset: Numbers, other: Numbers) -> None:
    both = dataset + other
    assert both.ffreaders() == [dataset.reader, other.reader]
    assert Subset(both, [0]).ffreaders() == both.ffreaders()
    holder = Holder()
    holder.inner, holder.reader = {"x": (dataset, holder)}, other.reader
    assert holder.ffreaders() == [dataset.reader, other.reader]
    holder.reader = None  # forgotten
    assert holder.ffreaders() == [dataset.reader]
    del holder.inner
    assert holder.ffreaders() == []
    with pytest.raises(AttributeError):
        del holder.inner


@pytest.mark.parametrize("kind", [Numbers, OwnNumbers])
def test_pytorchs_own_loader_reads_batches(kind: Any, tmp_path: Path) -> None:
    dataset = kind(write_numbers(tmp_path / "a.ffr", 10))
    loader = torch_data.DataLoader(dataset, batch_size=4)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    if kind is Numbers:
        assert dataset.log == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert list(torch_data.DataLoader(dataset, batch_size=None)) == list(range(10))


@pytest.mark.parametrize("kind", [Numbers, OwnNumbers])
def test_pytorchs_own_subset_and_split_read_batches(kind: Any, tmp_path: Path) -> None:
    dataset = kind(write_numbers(tmp_path / "a.ffr", 10))
    subset = torch_data.Subset(dataset, [9, 8, 7])
    assert [batch.tolist() for batch in torch_data.DataLoader(subset, batch_size=2)] == [[9, 8], [7]]
    parts = torch_data.random_split(dataset, [6, 4])
    seen = [
        sample for part in parts for batch in torch_data.DataLoader(part, batch_size=3) for sample in batch.tolist()
    ]
    assert sorted(seen) == list(range(10))
    if kind is Numbers:
        assert [len(batch) for batch in dataset.log] == [2, 1, 3, 3, 3, 1]
        assert subset[0] == 9
