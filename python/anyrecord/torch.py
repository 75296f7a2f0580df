"""For PyTorch: `ElasticSampler` as a torch sampler, and what goes with its loaders.

`Records` are a map-style dataset as they are. With torchdata's `StatefulDataLoader` the sampler's state is part of the
loader's; with PyTorch's own `DataLoader`, `ElasticLoader` keeps count of what was delivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    from torch.utils.data import Sampler
except ImportError as error:
    raise ImportError("anyrecord.torch needs PyTorch: pip install torch") from error

from anyrecord import sampling
from anyrecord.sampling import ElasticLoader

__all__ = ["ElasticLoader", "ElasticSampler", "sampler_state"]

# What StatefulDataLoader calls the places on the way to the sampler's state.
_WAYS = (
    ("_snapshot", "_main_snapshot", "_sampler_iter_state", "sampler_state"),
    ("_snapshot", "_main_snapshot", "_index_sampler_state"),
    ("_sampler_iter_state", "sampler_state"),
    ("_index_sampler_state",),
)


class ElasticSampler(sampling.ElasticSampler, Sampler[int]):
    __doc__ = sampling.ElasticSampler.__doc__


def sampler_state(loader_state: Mapping[str, Any]) -> dict[str, int]:
    """The state of the `ElasticSampler` in a state of torchdata's `StatefulDataLoader`.

    The loader itself resumes only with the same number of workers. A new loader, with any number of workers and any
    batch size, resumes from `sampler.load_state_dict(sampler_state(state))`.
    """
    if loader_state.get("_steps_since_snapshot", 0):
        raise ValueError("the loader's state is older than its last batch; use snapshot_every_n_steps=1")
    for way in _WAYS:
        found: Any = loader_state
        for name in way:
            found = found.get(name) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping) and {"epoch", "position", "length", "order"} <= found.keys():
            return dict(found)
    raise ValueError("no state of an ElasticSampler in this; expected the state_dict() of a StatefulDataLoader")
