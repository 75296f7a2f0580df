"""Packed batches in PyTorch and pyarrow, without a copy."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyrecord
import numpy as np
import pytest
from anyrecord import Packed, Records

pytestmark = pytest.mark.framework

WANTED = [7, 0, 3, 7]
EXPECTED = [b"7" * 1000, b"", b"3" * 1000, b"7" * 1000]


@pytest.fixture
def records(tmp_path: Path) -> Records:
    with anyrecord.create(tmp_path / "data.ffr", durable=False) as out:
        out.write_many(b"%d" % i * (1000 if i else 0) for i in range(10))
    return anyrecord.open(tmp_path / "data.ffr")


def address(packed: Packed) -> int:
    return int(packed.numpy()[0].ctypes.data)


def test_tensors_share_the_memory_and_keep_it(records: Records) -> None:
    import torch
    from anyrecord.torch import PackedTensors

    packed = records.read_packed(WANTED)
    tensors = packed.torch()
    data, offsets = tensors
    assert type(tensors) is PackedTensors
    assert (data.dtype, offsets.dtype, offsets.tolist()) == (torch.uint8, torch.int64, list(packed.offsets))
    assert data.data_ptr() == torch.from_dlpack(packed).data_ptr() == address(packed)
    data[0] = ord("x")
    assert bytes(packed.record(0)[:2]) == b"x7"
    records.close()
    del packed
    gc.collect()
    assert bytes(data.numpy())[1:] == b"".join(EXPECTED)[1:]


def test_tensors_of_no_records_are_empty(records: Records) -> None:
    import torch

    for indices in ([], [0, 0]):
        data, offsets = records.read_packed(indices).torch()
        assert (data.dtype, data.numel(), offsets.tolist()) == (torch.uint8, 0, [0] * (len(indices) + 1))
        assert torch.from_dlpack(records.read_packed(indices)).numel() == 0


def test_pinned_tensors_are_copies_where_there_is_a_device_to_pin_for(records: Records) -> None:
    import torch

    packed = records.read_packed(WANTED)
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError):
            packed.torch(pin_memory=True)
        return
    data, offsets = packed.torch(pin_memory=True)
    assert data.is_pinned()
    assert offsets.is_pinned()
    assert data.data_ptr() != address(packed)
    assert bytes(data.numpy()) == bytes(packed)


def test_arrow_arrays_share_the_memory_and_keep_it(records: Records) -> None:
    import pyarrow

    packed = records.read_packed(WANTED)
    found = packed.arrow()
    found.validate(full=True)
    assert (found.type, found.null_count, found.to_pylist()) == (pyarrow.binary(), 0, EXPECTED)
    assert found.buffers()[2].address == address(packed)
    large = pyarrow.array(packed, type=pyarrow.large_binary())
    large.validate(full=True)
    assert (large.type, large.to_pylist(), large.buffers()[2].address) == (
        pyarrow.large_binary(),
        EXPECTED,
        address(packed),
    )
    stream = pyarrow.chunked_array(packed)
    assert (stream.num_chunks, stream.to_pylist()) == (1, EXPECTED)
    assert stream.chunk(0).buffers()[2].address == address(packed)
    assert pyarrow.table({"record": packed})["record"].to_pylist() == EXPECTED
    records.close()
    del packed
    gc.collect()
    assert found.to_pylist() == large.to_pylist() == EXPECTED


@pytest.mark.parametrize("indices", [[], [0], [-1], range(10), np.array([3, 3]), slice(None, None, -2)], ids=str)
def test_read_arrow_reads_what_a_list_has(records: Records, indices: Any) -> None:
    found = records.read_arrow(indices)
    found.validate(full=True)
    assert found.to_pylist() == list(records[indices])
    assert pickle.loads(pickle.dumps(found)).equals(found)


MISSING = """
import sys
for name in ("numpy", "torch", "pyarrow"):
    sys.modules[name] = None
import anyrecord
with anyrecord.create("a.ffr") as out:
    out.write(b"a")
packed = anyrecord.open("a.ffr").read_packed([0])
for way in (packed.numpy, packed.torch, packed.arrow, lambda: anyrecord.open("a.ffr").read_arrow([0])):
    try:
        way()
    except ImportError as error:
        print(error)
"""


def test_a_missing_library_says_what_to_install(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", MISSING], cwd=tmp_path, capture_output=True, text=True, check=True)
    numpy, torch, *arrow = ran.stdout.splitlines()
    assert "pip install numpy" in numpy
    assert "pip install" in torch
    assert "torch" in torch
    assert ["pip install 'anyrecord[arrow]'" in line for line in arrow] == [True, True]
