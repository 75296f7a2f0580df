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
