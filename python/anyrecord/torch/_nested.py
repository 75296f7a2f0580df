"""Tensors in nested lists, tuples, dicts and dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

__all__ = ["bytes_of", "map_tensors"]


def map_tensors(value: Any, function: Callable[[Any], Any], of_others: Callable[[Any], Any] | None = None) -> Any:
    """Calls the function on each tensor in a nested value and returns the same structure with the results.

    >>> map_tensors({"a": [torch.tensor(1), b"2"]}, lambda tensor: tensor + 1)
    {'a': [tensor(2), b'2']}

    `of_others` is called on each object that is no container. Without it, such objects stay as they are.
    """
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, str | bytes):
        return value
    each = partial(map_tensors, function=function, of_others=of_others)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(each, value))
    if type(value) in (list, tuple, set):
        return type(value)(map(each, value))
    if isinstance(value, Mapping):
        mapped = {key: each(item) for key, item in value.items()}
        return mapped if type(value) is dict else _same_type(value, mapped)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(value, **{name: each(getattr(value, name)) for name in fields})
    return value if of_others is None else of_others(value)


def _same_type(value: Mapping[Any, Any], mapped: dict[Any, Any]) -> Any:
    try:
        return type(value)(mapped)  # type: ignore[call-arg]  # most mappings are made from another one
    except TypeError:
        return mapped


def bytes_of(value: Any) -> int:
    """About how many bytes a batch holds: of its records, tensors and arrays.

    >>> bytes_of({"a": [b"12", b"34"], "b": torch.zeros(2, dtype=torch.int32)})
    12
    """
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    if isinstance(value, list | tuple):
        # All samples of a batch have about the same size, and a batch can have many.
        few = value[:16]
        return sum(map(bytes_of, few)) * len(value) // len(few) if few else 0
    if isinstance(value, Mapping):
        return sum(map(bytes_of, value.values()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sum(bytes_of(getattr(value, field.name, None)) for field in dataclasses.fields(value))
    try:
        return int(value.nbytes)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return 0
