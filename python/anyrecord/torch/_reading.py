"""Reads of batches for datasets, in worker processes of a `DataLoader` or without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
import torch.utils.data

from anyrecord._mapped import MappedRecords
from anyrecord._records import Openable, Records
from anyrecord._records import open as open_records
from anyrecord.torch._filling import read_into, rounded
from anyrecord.torch._packed import PackedTensors

if TYPE_CHECKING:
    from anyrecord import Packed

__all__ = ["PackedReader", "Part", "checked_decode", "open_part", "read_each"]

Part: TypeAlias = "Records | MappedRecords[Any]"

_FIRST_BYTES = 1 << 20
_LEAST_BYTES = 1 << 12


def checked_decode(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, or TypeError if it is not one."""
    if not callable(decode):
        raise TypeError(f"decode= takes a function, not {type(decode).__name__}")
    return decode


def open_part(source: Part | Openable, decode: Callable[[bytes], Any] | None, packed: bool, options: Any) -> Part:
    """The records of a dataset, with the function that decodes them."""
    if isinstance(source, Records | MappedRecords):
        if options:
            raise TypeError(f"these records are open; pass {', '.join(options)} to anyrecord.open")
        records: Part = source
    else:
        records = open_records(source, **options)
    if decode is not None:
        records = records.map(checked_decode(decode))
    if packed and isinstance(records, MappedRecords):
        raise ValueError("packed=True delivers records as they are stored; it cannot be used with decode=")
    return records


def read_each(part: Part, positions: Sequence[int]) -> list[tuple[Any] | None]:
    """The sample at each position, in one read. None for a damaged record that is left out."""
    records = part._records if isinstance(part, MappedRecords) else part
    if not records._leaves_out:
        return [(sample,) for sample in part.__getitems__(positions)]
    found = records._getitems(positions)
    samples: list[Any] = [record for record in found if record is not None]
    values = iter(part._apply_all(samples, positions) if isinstance(part, MappedRecords) else samples)
    return [None if record is None else (next(values),) for record in found]


def _read_packed(part: Part, positions: Sequence[int], places: Sequence[int]) -> tuple[Packed, Sequence[int]]:
    """The records at the positions, and their places in a batch."""
    assert isinstance(part, Records)
    packed = part.read_packed(positions)
    if packed.num_records < len(positions):  # damaged ones are left out; a list says which
        found = part._getitems(positions)
        places = [place for place, record in zip(places, found, strict=True) if record is not None]
    return packed, places


class _Shared:
    """Shared memory. PyTorch reserves all of it at once, so making more than is needed takes time and memory."""

    def __init__(self, size: int) -> None:
        self.tensor = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(size))
        self.buffer = self.tensor.numpy()


class PackedReader:
    """Reads packed batches. In a worker process they are in shared memory, so that handing them over copies nothing."""

    def __init__(self) -> None:
        self._expected = _FIRST_BYTES

    def read(self, records: Part, positions: Sequence[int]) -> PackedTensors:
        assert isinstance(records, Records)
        if torch.utils.data.get_worker_info() is None:
            return PackedTensors._of(records.read_packed(positions))
        memory, offsets = read_into(records, positions, _Shared(self._expected), _Shared)
        # It soon forgets one batch that is much larger than the others.
        self._expected = max(rounded(offsets[-1]), self._expected // 2, _LEAST_BYTES)
        return PackedTensors(memory.tensor[: offsets[-1]], torch.frombuffer(offsets, dtype=torch.int64).share_memory_())

    def read_parts(self, parts: Sequence[tuple[Part, Sequence[int], Sequence[int]]]) -> PackedTensors:
        """Reads a batch of several parts: one read of each. Of each part, it takes the positions and the places in the
        batch."""
        sizes = np.full(sum(len(places) for _, _, places in parts), -1)  # -1: a damaged record that is left out
        found = [_read_packed(*part) for part in parts]
        for packed, places in found:
            sizes[places] = np.diff(packed.offsets)
        offsets = np.concatenate(([0], np.cumsum(np.maximum(sizes, 0))))
        is_in_worker = torch.utils.data.get_worker_info() is not None
        memory = _Shared(int(offsets[-1])).tensor if is_in_worker else torch.empty(int(offsets[-1]), dtype=torch.uint8)
        into = memoryview(memory.numpy())
        for packed, places in found:
            data = memoryview(packed.data)
            begins = offsets[places].tolist()
            for at, (begin, end) in zip(begins, pairwise(packed.offsets), strict=True):
                into[at : at + end - begin] = data[begin:end]
        kept = torch.from_numpy(offsets[np.concatenate(([True], sizes >= 0))])
        return PackedTensors(memory, kept.share_memory_() if is_in_worker else kept)
