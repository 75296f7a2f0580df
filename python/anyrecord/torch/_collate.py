"""What a batch is made of: samples in a list, in tensors of equal shape, or in jagged tensors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
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
    tensors = [_tensor(sample) for sample in samples]
    # PyTorch takes an empty list for floats, which would make floats of all others.
    some = next((tensor for tensor in tensors if len(tensor)), None)
    if some is not None:
        tensors = [
            some.new_empty((0, *some.shape[1:])) if isinstance(sample, list | tuple) and not sample else tensor
            for sample, tensor in zip(samples, tensors, strict=True)
        ]
    ends = accumulate(map(len, tensors), initial=0)
    return PackedTensors(torch.cat(tensors), torch.tensor(list(ends)))


def _tensor(sample: Any) -> Any:
    """A sample as a tensor whose first dimension is the one that differs. Raises TypeError if it is none."""
    if isinstance(sample, bytes | bytearray):
        return torch.frombuffer(bytearray(sample), dtype=torch.uint8) if sample else torch.empty(0, dtype=torch.uint8)
    try:
        tensor = torch.as_tensor(sample)
        found = "a single number"
    except (TypeError, ValueError, RuntimeError) as error:
        tensor, found = None, f"{type(sample).__name__} ({error})"
    if tensor is not None and tensor.dim():
        return tensor
    raise TypeError(f"collate='jagged' needs samples that are tensors, arrays, lists of numbers or bytes, not {found}")


def jagged(batch: PackedTensors) -> Any:
    """The batch as a jagged tensor. Only for the consumer's thread: PyTorch numbers jagged shapes without a lock."""
    return torch.nested.nested_tensor_from_jagged(batch.data, batch.offsets)


def check_equal_sizes(offsets: Any) -> int:
    """The size of each record. Raises ValueError if not all have the same size."""
    sizes = np.diff(np.asarray(offsets))
    others = sizes[sizes != sizes[0]]
    size = int(sizes[0])
    if not len(others):
        return size
    raise ValueError(
        f"collate='tensors' needs records of equal size, but this batch has records of {size} and {others[0]} bytes; "
        "use collate='packed' or collate='jagged', or decode= to tensors of equal shape"
    )


def pinned(value: Any) -> Any:
    """The same value with all tensors in pinned memory. Objects with a method `pin_memory` pin themselves."""
    return map_tensors(value, _pin, _pin_object)


def _pin_object(value: Any) -> Any:
    pin_memory = getattr(value, "pin_memory", None)
    return pin_memory() if callable(pin_memory) and not isinstance(value, type) else value


def _pin(tensor: Any) -> Any:
    if tensor.is_nested and tensor.layout == torch.jagged:
        return torch.nested.nested_tensor_from_jagged(tensor.values().pin_memory(), tensor.offsets().pin_memory())
    return tensor.pin_memory()
