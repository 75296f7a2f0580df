"""Ranks that step together vote in each step whether to go on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["Vote", "default_vote"]

Vote: TypeAlias = Callable[[int], int]
"""Gets the number of this rank, and returns the largest number of all ranks."""

WAITING, DONE, GOING_ON = 0, 1, 2
"""What a rank says: it has no record now, all shards are done, or it has a record."""


def default_vote() -> Vote:
    """The vote of all ranks of `torch.distributed`, if it is initialised. Without it, there is one rank."""
    # Not imported here: if it is initialised, it is already imported.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return lambda number: number
    return _largest_of_ranks


def _largest_of_ranks(number: int) -> int:
    torch: Any = sys.modules["torch"]
    distributed: Any = sys.modules["torch.distributed"]
    # NCCL reduces tensors of the GPU only.
    device = "cuda" if "nccl" in str(distributed.get_backend()) else "cpu"
    largest = torch.tensor([number], dtype=torch.int64, device=device)
    distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
    return int(largest.item())
