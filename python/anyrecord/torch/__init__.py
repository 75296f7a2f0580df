"""For PyTorch: `Loader`, which reads, decodes and collates batches in threads, and datasets for PyTorch's `DataLoader`.

>>> import anyrecord
>>> from anyrecord.torch import Loader
>>> with anyrecord.create("doc.ffr", overwrite=True) as out:
...     out.write_many(b"%d" % i for i in range(10))
>>> for batch in Loader("doc.ffr", batch_size=4, decode=int, shuffle=True):
...     print(batch)
[0, 5, 9, 3]
[6, 4, 1, 2]
[8, 7]

`Loader` needs no worker processes and resumes exactly. For PyTorch's own `DataLoader` there are `ElasticSampler`, which
divides the records among ranks and resumes with other ranks, `ElasticLoader`, which counts what was delivered, and the
datasets `Dataset` and `IterableDataset`. You can also pass `Records` to a `DataLoader`, as a map-style dataset.
"""

from __future__ import annotations

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("anyrecord.torch needs PyTorch: pip install 'anyrecord[torch]'") from error
try:
    import numpy  # noqa: F401
except ImportError as error:
    raise ImportError("anyrecord.torch needs numpy: pip install 'anyrecord[torch]'") from error

from anyrecord._shard_tcp import connect_store, host_store
from anyrecord.sampling import ElasticLoader
from anyrecord.torch._datasets import Dataset, concat
from anyrecord.torch._iterable import IterableDataset
from anyrecord.torch._loader import Loader, LoaderIterator
from anyrecord.torch._packed import PackedTensors, packed_batch
from anyrecord.torch._sampler import ElasticSampler, sampler_state
from anyrecord.torch._shards import ShardDataset, until_all_done

__all__ = [
    "Dataset",
    "ElasticLoader",
    "ElasticSampler",
    "IterableDataset",
    "Loader",
    "LoaderIterator",
    "PackedTensors",
    "ShardDataset",
    "concat",
    "connect_store",
    "host_store",
    "packed_batch",
    "sampler_state",
    "until_all_done",
]
