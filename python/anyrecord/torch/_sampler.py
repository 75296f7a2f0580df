"""`ElasticSampler` as a torch sampler, and its state inside the state of torchdata's loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.data import Sampler

from anyrecord import sampling

__all__ = ["ElasticSampler", "sampler_state"]

# The keys under which StatefulDataLoader stores the sampler's state, from the outermost to the innermost.
_KEY_PATHS = (
    ("_snapshot", "_main_snapshot", "_sampler_iter_state", "sampler_state"),
    ("_snapshot", "_main_snapshot", "_index_sampler_state"),
    ("_sampler_iter_state", "sampler_state"),
    ("_index_sampler_state",),
)


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
