"""What a batch is made of: samples in a list, in tensors of equal shape, or in jagged tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch.utils.data import default_collate

from anyrecord.torch._nested import map_tensors
from anyrecord.torch._packed import PackedTensors

__all__ = ["Collate", "Form", "check_collate", "collate_function", "from_packed", "pinned"]

Form: TypeAlias = Literal["tensors", "packed", "jagged"]
Collate: TypeAlias = Form | Callable[[list[Any]], Any] | None


def check_collate(collate: Collate, has_decode: bool) -> None:
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
        return default_collate  # type: ignore[no-any-return]  # torch has no types here
    if collate == "jagged":
        return _jagged
    return collate if callable(collate) else None


def _jagged(samples: list[Any]) -> Any:
    """A jagged tensor of samples that are tensors or arrays."""
    tensors = [torch.as_tensor(sample) for sample in samples]
    return torch.nested.nested_tensor(tensors, layout=torch.jagged)


def from_packed(packed: PackedTensors, form: Form) -> Any:
    """Records that were not decoded, in the form that was asked for, without a copy."""
    if form == "packed":
        return packed
    if form == "jagged":
        return torch.nested.nested_tensor_from_jagged(packed.data, packed.offsets)
    return packed.data.view(len(packed.offsets) - 1, equal_size(packed.offsets))


def equal_size(offsets: Any) -> int:
    """The size of each record. Raises ValueError if not all have the same size."""
    sizes = offsets.diff()
    first = int(sizes[0])
    if not bool((sizes == first).all()):
        other = int(sizes[(sizes != first).nonzero()[0, 0]])
        raise ValueError(
            f"collate='tensors' needs records of equal size, but this batch has records of {first} and {other} bytes; "
            "use collate='packed' or collate='jagged', or decode= them to tensors of equal shape"
        )
    return first


def pinned(value: Any) -> Any:
    """The same value with all tensors in pinned memory."""
    return map_tensors(value, _pin)


def _pin(tensor: Any) -> Any:
    if tensor.is_nested and tensor.layout == torch.jagged:
        return torch.nested.nested_tensor_from_jagged(tensor.values().pin_memory(), tensor.offsets().pin_memory())
    return tensor.pin_memory()
