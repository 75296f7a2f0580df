"""Records in tensors of PyTorch, without a second copy."""

from __future__ import annotations

from pathlib import Path

import anyrecord
import numpy as np
import pytest
from anyrecord import Records

pytestmark = pytest.mark.framework


@pytest.fixture
def records(tmp_path: Path) -> Records:
    with anyrecord.create(tmp_path / "data.ffr", durable=False) as out:
        out.write_many(b"%d" % i * 1000 for i in range(10))
    return anyrecord.open(tmp_path / "data.ffr")


def test_records_are_read_into_a_tensor(records: Records) -> None:
    import torch

    tensor = torch.zeros(2000, dtype=torch.uint8)
    offsets = records.read_into(tensor, [7, 3])
    assert list(offsets) == [0, 1000, 2000]
    assert bytes(tensor.numpy()) == b"7" * 1000 + b"3" * 1000


def test_a_tensor_of_something_else_is_refused(records: Records) -> None:
    import torch

    with pytest.raises(TypeError, match="buffer of bytes"):
        records.read_into(torch.zeros(2000), [1])


# PyTorch says so once in a process: it has no tensors that are only to be read.
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_a_tensor_may_look_at_a_record_in_place(records: Records) -> None:
    import torch

    array = np.frombuffer(records.buffer(5), np.uint8)
    tensor = torch.from_numpy(array)
    assert tensor.data_ptr() == array.__array_interface__["data"][0]
    assert bytes(tensor.numpy()) == b"5" * 1000


def test_a_tensor_of_integers_is_a_list_of_record_numbers_and_one_of_booleans_is_not(records: Records) -> None:
    import torch

    order = anyrecord.Permutation(10, seed=1)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        numbers = torch.tensor([7, 3], dtype=dtype)
        assert records[numbers] == records[[7, 3]] == records[[numbers[0], numbers[1]]]
        assert order.take(numbers) == order.take([7, 3])
        assert records[numbers[:1]] == [records[7]], "a list of one"
        assert records[numbers[0]] == records[7]
    mask = torch.zeros(10, dtype=torch.bool)
    for booleans in (mask, mask[:1], [torch.tensor(True)], [torch.tensor(1), mask[0]]):
        for read in (records.__getitem__, records.__getitems__, records.map(len).__getitem__, order.take):
            with pytest.raises(TypeError, match=r"numpy\.flatnonzero"):
                read(booleans)
    with pytest.raises(TypeError, match=r"numpy\.flatnonzero"):
        records[mask[0]]


@pytest.mark.parametrize("number", ["tensor(3)", "tensor([3])", "tensor(3, dtype=uint8)"])
def test_a_tensor_of_one_integer_is_a_number_and_one_of_a_boolean_is_not(records: Records, number: str) -> None:
    import torch

    value = eval(number, {"tensor": torch.tensor, "uint8": torch.uint8})
    assert [len(batch) for batch in records.batches(value)] == [3, 3, 3, 1]
    assert list(records.shuffle(value)) == list(records.shuffle(3))
    for wrong in (torch.tensor(True), torch.tensor(1.5)):
        with pytest.raises(TypeError, match="must be a whole number"):
            records.batches(wrong)
