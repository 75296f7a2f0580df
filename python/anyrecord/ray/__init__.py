"""For Ray: an actor that keeps the shards of a job, as the store of a `ShardQueue`."""

from __future__ import annotations

try:
    import ray  # noqa: F401
except ImportError as error:
    raise ImportError("anyrecord.ray needs Ray: pip install 'anyrecord[ray]'") from error

from anyrecord.ray._shard_actor import shard_store

__all__ = ["shard_store"]
