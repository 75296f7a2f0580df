"""`PackedTensors`: many records in one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch

if TYPE_CHECKING:
    from anyrecord import Packed

__all__ = ["PackedTensors", "packed_batch"]

T = TypeVar("T")


class PackedTensors(NamedTuple):
    """Many records in one tensor: record `i` is `data[offsets[i]:offsets[i + 1]]`.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> data, offsets = anyrecord.open("doc.ffr").read_packed([2, 0]).torch()
    >>> data
    tensor([116, 104, 114, 101, 101, 111, 110, 101], dtype=torch.uint8)
    >>> offsets
    tensor([0, 5, 8])
    """

    data: torch.Tensor
    """The bytes of all records, one after the other."""
    offsets: torch.Tensor
    """Where each record begins in `data`, and the end: one more number than records."""

    @classmethod
    def _of(cls, packed: Packed, pin_memory: bool = False) -> PackedTensors:
        # `frombuffer` refuses an empty buffer.
        data = (
            torch.frombuffer(packed.data, dtype=torch.uint8)
            if packed.data.nbytes
            else torch.empty(0, dtype=torch.uint8)
        )
        offsets = torch.frombuffer(packed.offsets, dtype=torch.int64)
        return cls(data.pin_memory(), offsets.pin_memory()) if pin_memory else cls(data, offsets)


def packed_batch(batch: T) -> T:
    """Returns the batch as it is: the `collate_fn` of a `DataLoader` over a dataset that delivers packed batches."""
    return batch
