"""What a batch is made of: samples in a list, in tensors of equal shape, or in jagged tensors."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch.utils.data import default_collate

from anyrecord.torch._nested import map_tensors
from anyrecord.torch._packed import PackedTensors

__all__ = ["Collate", "Form", "check_collate", "check_equal_sizes", "collate_function", "jagged", "pinned"]

Form: TypeAlias = Literal["tensors", "packed", "jagged"]
Collate: TypeAlias = Form | Callable[[list[Any]], Any] | None


def check_collate(collate: Collate, has_decode: bool) -> None:
    """Raises if the argument `collate` is wrong."""
    if isinstance(collate, str):
        if collate not in get_args(Form):
            raise ValueError(
                f"collate={collate!r} is not valid: it must be 'tensors', 'packed', 'jagged' or a function"
            )
        if collate == "packed" and has_decode:
            raise ValueError("collate='packed' delivers records as they are stored; it cannot be used with decode=")
    elif collate is not None and not callable(collate):
        raise TypeError(f"collate= takes 'tensors', 'packed', 'jagged' or a function, not {type(collate).__name__}")


def collate_function(collate: Collate) -> Callable[[list[Any]], Any] | None:
    """The function that makes a batch of decoded samples. None if the list is the batch."""
    if collate == "tensors":
        return default_collate  # type: ignore[no-any-return]  # torch is not typed here
    if collate == "jagged":
        return _joined
    return collate if callable(collate) else None


def _joined(samples: list[Any]) -> PackedTensors:
    """Samples one after the other, and where each begins. `jagged` makes one tensor of both."""
    tensors = [torch.as_tensor(sample) for sample in samples]
    ends = accumulate((len(tensor) for tensor in tensors), initial=0)
    return PackedTensors(torch.cat(tensors), torch.tensor(list(ends)))


def jagged(batch: PackedTensors) -> Any:
    """The batch as a jagged tensor. Only for the consumer's thread: PyTorch numbers jagged shapes without a lock."""
    return torch.nested.nested_tensor_from_jagged(batch.data, batch.offsets)


def check_equal_sizes(offsets: array[int]) -> int:
    """The size of each record. Raises ValueError if not all have the same size."""
    size = offsets[1]
    if offsets == array(offsets.typecode, [size * i for i in range(len(offsets))]):
        return size
    other = next(b - a for a, b in pairwise(offsets) if b - a != size)
    raise ValueError(
        f"collate='tensors' needs records of equal size, but this batch has records of {size} and {other} bytes; "
        "use collate='packed' or collate='jagged', or decode= to tensors of equal shape"
    )


def pinned(value: Any) -> Any:
    """The same value with all tensors in pinned memory."""
    return map_tensors(value, _pin)


def _pin(tensor: Any) -> Any:
    if tensor.is_nested and tensor.layout == torch.jagged:
        return torch.nested.nested_tensor_from_jagged(tensor.values().pin_memory(), tensor.offsets().pin_memory())
    return tensor.pin_memory()
