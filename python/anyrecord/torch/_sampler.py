"""`ElasticSampler` as a torch sampler, and its state inside the state of torchdata's loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.data.distributed import DistributedSampler

from anyrecord import sampling

__all__ = ["ElasticSampler", "sampler_state"]

# The keys under which StatefulDataLoader stores the sampler's state, from the outermost to the innermost.
_KEY_PATHS = (
    ("_snapshot", "_main_snapshot", "_sampler_iter_state", "sampler_state"),
    ("_snapshot", "_main_snapshot", "_index_sampler_state"),
    ("_sampler_iter_state", "sampler_state"),
    ("_index_sampler_state",),
)


# Trainers divide the records of other samplers among the ranks. They leave those of a `DistributedSampler` as they are.
class ElasticSampler(sampling.ElasticSampler, DistributedSampler):
    """The `ElasticSampler` of `anyrecord.sampling` as a sampler of PyTorch: record numbers for one rank.

    >>> from torch.utils.data import DataLoader
    >>> loader = DataLoader(range(100, 110), sampler=ElasticSampler(range(10), seed=42, rank=0, world=2), batch_size=3)
    >>> sum(len(batch) for batch in loader)
    5

    Arguments, states and what happens at the end of an epoch are those of the class in `anyrecord.sampling`.
    """


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
