"""Reads of batches for datasets, in worker processes of a `DataLoader` or without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.utils.data

from anyrecord._mapped import MappedRecords
from anyrecord._records import Openable, Records
from anyrecord._records import open as open_records
from anyrecord.torch._filling import read_into, rounded
from anyrecord.torch._packed import PackedTensors

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


class _Shared:
    """Shared memory. PyTorch reserves all of it at once, so making more than is needed takes time and memory."""

    def __init__(self, size: int) -> None:
        self.tensor = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(size))
        self.buffer = self.tensor.numpy()


class PackedReader:
    """Reads packed batches. In a worker process they are in shared memory, so that handing them over copies nothing."""

    def __init__(self) -> None:
        self._expected = _FIRST_BYTES

    def read(self, records: Records, positions: Sequence[int]) -> PackedTensors:
        if torch.utils.data.get_worker_info() is None:
            return PackedTensors._of(records.read_packed(positions))
        memory, offsets = read_into(records, positions, _Shared(self._expected), _Shared)
        # It soon forgets one batch that is much larger than the others.
        self._expected = max(rounded(offsets[-1]), self._expected // 2, _LEAST_BYTES)
        return PackedTensors(memory.tensor[: offsets[-1]], torch.frombuffer(offsets, dtype=torch.int64).share_memory_())
