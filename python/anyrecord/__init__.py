"""Reads and writes record files for machine learning: exactly, fast, and safely even if a file is hostile.

>>> import anyrecord
>>> with anyrecord.create("doc.ffr", overwrite=True) as out:
...     for sample in (b"cat", b"dog", b"bird"):
...         out.write(sample)
>>> records = anyrecord.open("doc.ffr")
>>> records[2], records[[1, 0]], list(records[1:])
(b'bird', [b'dog', b'cat'], [b'dog', b'bird'])
"""

from __future__ import annotations

import os as _os
import typing as _typing
import warnings as _warnings

from anyrecord import _core
from anyrecord._combine import concat, mix
from anyrecord._convert import Converted, convert
from anyrecord._copy import Copied, copy
from anyrecord._core import Permutation, RecordsIterator
from anyrecord._files import FileInfo, Info, Report, info, verify
from anyrecord._folder import Folder, unpack
from anyrecord._index import build_index
from anyrecord._iteration import Batches, BatchIterator, MappedIterator
from anyrecord._mapped import MappedRecords
from anyrecord._options import Limits
from anyrecord._packed import Packed
from anyrecord._packing import pack
from anyrecord._places import Location, Skipped
from anyrecord._records import Records, open
from anyrecord._recover import Recovered, recover
from anyrecord._salvage import Salvaged, salvage
from anyrecord._stats import Stats
from anyrecord._temporaries import Temporary
from anyrecord._writer import Writer, create
from anyrecord.errors import (
    ChecksumError,
    ClosedError,
    DamageWarning,
    FormatError,
    LeaseLostError,
    LimitError,
    PublishError,
    RecordError,
    TruncatedError,
)

if _typing.TYPE_CHECKING:
    from anyrecord._elastic import ElasticRecords, elastic
    from anyrecord._shard_lease import Lease
    from anyrecord._shard_plan import Shard, ShardPlan
    from anyrecord._shard_queue import ShardQueue
    from anyrecord._shard_status import HeldShard, ShardStatus
    from anyrecord._shard_store import MemoryStore, ShardStore

__all__ = [
    "BatchIterator",
    "Batches",
    "ChecksumError",
    "ClosedError",
    "Converted",
    "Copied",
    "DamageWarning",
    "ElasticRecords",
    "FileInfo",
    "Folder",
    "FormatError",
    "HeldShard",
    "Info",
    "Lease",
    "LeaseLostError",
    "LimitError",
    "Limits",
    "Location",
    "MappedIterator",
    "MappedRecords",
    "MemoryStore",
    "Packed",
    "Permutation",
    "PublishError",
    "RecordError",
    "Records",
    "RecordsIterator",
    "Recovered",
    "Report",
    "Salvaged",
    "Shard",
    "ShardPlan",
    "ShardQueue",
    "ShardStatus",
    "ShardStore",
    "Skipped",
    "Stats",
    "Temporary",
    "TruncatedError",
    "Writer",
    "build_index",
    "concat",
    "convert",
    "copy",
    "create",
    "elastic",
    "info",
    "mix",
    "open",
    "pack",
    "recover",
    "salvage",
    "unpack",
    "verify",
]

__version__ = _core.VERSION

# Imported when they are first used: few programs hand out shards, and the import would take a tenth longer.
_LATER = {
    "ElasticRecords": "_elastic",
    "HeldShard": "_shard_status",
    "Lease": "_shard_lease",
    "MemoryStore": "_shard_store",
    "Shard": "_shard_plan",
    "ShardPlan": "_shard_plan",
    "ShardQueue": "_shard_queue",
    "ShardStatus": "_shard_status",
    "ShardStore": "_shard_store",
    "elastic": "_elastic",
}


if not _typing.TYPE_CHECKING:  # a checker must still report a name that does not exist

    def __getattr__(name: str) -> object:
        if (module := _LATER.get(name)) is None:
            raise AttributeError(f"module 'anyrecord' has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(f"anyrecord.{module}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_core.after_fork)

if _core.DEBUG_BUILD:
    _warnings.warn(
        "this is a debug build of anyrecord. It is many times slower than a release build; build with --release",
        RuntimeWarning,
        stacklevel=2,
    )
