"""For PyTorch: `ElasticSampler` as a torch sampler, and helpers for loaders that use it.

You can pass `Records` to a loader as a map-style dataset. With torchdata's `StatefulDataLoader`, the state of the
sampler is part of the loader's state. With PyTorch's own `DataLoader`, `ElasticLoader` counts what was delivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

try:
    import torch
    from torch.utils.data import Sampler
except ImportError as error:
    raise ImportError("anyrecord.torch needs PyTorch: pip install torch") from error

from anyrecord import sampling
from anyrecord.sampling import ElasticLoader

if TYPE_CHECKING:
    from anyrecord import Packed

__all__ = ["ElasticLoader", "ElasticSampler", "PackedTensors", "sampler_state"]

# The keys under which StatefulDataLoader stores the sampler's state, from the outermost to the innermost.
_KEY_PATHS = (
    ("_snapshot", "_main_snapshot", "_sampler_iter_state", "sampler_state"),
    ("_snapshot", "_main_snapshot", "_index_sampler_state"),
    ("_sampler_iter_state", "sampler_state"),
    ("_index_sampler_state",),
)


class PackedTensors(NamedTuple):
    """The records of a batch as two tensors. `Packed.torch` returns it."""

    data: torch.Tensor
    """The bytes of all records (uint8)."""
    offsets: torch.Tensor
    """Where each record begins in `data`, and the end (int64)."""

    @classmethod
    def _of(cls, packed: Packed, pin_memory: bool) -> PackedTensors:
        # `frombuffer` refuses an empty buffer.
        data = torch.frombuffer(packed, dtype=torch.uint8) if packed.data.nbytes else torch.empty(0, dtype=torch.uint8)
        offsets = torch.frombuffer(packed.offsets, dtype=torch.int64)
        return cls(data.pin_memory(), offsets.pin_memory()) if pin_memory else cls(data, offsets)


class ElasticSampler(sampling.ElasticSampler, Sampler[int]):
    __doc__ = sampling.ElasticSampler.__doc__


def sampler_state(loader_state: Mapping[str, Any]) -> dict[str, int]:
    """Returns the state of the `ElasticSampler` from a state of torchdata's `StatefulDataLoader`.

    The loader itself can resume only with the same number of workers. To resume with any number of workers and any
    batch size, make a new loader and call `sampler.load_state_dict(sampler_state(state))`.
    """
    if loader_state.get("_steps_since_snapshot", 0):
        raise ValueError("the loader's state is older than its last batch; use snapshot_every_n_steps=1")
    for keys in _KEY_PATHS:
        found: Any = loader_state
        for name in keys:
            found = found.get(name) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping) and {"epoch", "position", "length", "order"} <= found.keys():
            return dict(found)
    raise ValueError("this contains no state of an ElasticSampler; pass the state_dict() of a StatefulDataLoader")
