"""`Stats`: what reading has cost so far."""

from __future__ import annotations

from collections.abc import Mapping

from anyrecord._dataclasses import dataclass

__all__ = ["Stats"]


@dataclass(frozen=True, slots=True)
class Stats:
    """What reading has cost this process so far. `Records.stats` returns it.

    A local file has reads instead of requests. A memory-mapped one is read by the system, which does not say how:
    there, each record or chunk that is copied out of the map is one read. The other numbers are 0 for local files.
    """

    requests: int
    """Requests that were sent to servers, including those that were sent again, and reads of local files."""
    bytes: int
    """Bytes that they brought. With servers more than the records: gaps between near records are read, too."""
    retries: int
    """Requests that were sent again because they failed or stalled."""
    waited_seconds: float
    """How long calls waited for servers, added up over all threads."""
    readahead_hits: int
    """Bytes that were in memory when they were needed, because they were fetched ahead."""
    readahead_bytes: int
    """Bytes that were fetched ahead. Without hits, they were fetched for nothing."""
    cache_hits: int
    """Reads that the local cache served (`cache=`). A read is a record, a chunk or a part of a table."""
    cache_misses: int
    """Reads that needed a server although there is a local cache."""
    cache_bytes: int
    """Bytes that came from the local cache."""
    cache_damaged: int
    """Blocks of the local cache that were not what they should be. They were deleted and fetched again."""

    @classmethod
    def _of(cls, counts: Mapping[str, int]) -> Stats:
        """The counters of the core, by their names."""
        return cls(
            requests=counts["requests"],
            bytes=counts["bytes"],
            retries=counts["retries"],
            waited_seconds=counts["waited_us"] / 1e6,
            readahead_hits=counts["readahead_hits"],
            readahead_bytes=counts["readahead_bytes"],
            cache_hits=counts["cache_hits"],
            cache_misses=counts["cache_misses"],
            cache_bytes=counts["cache_bytes"],
            cache_damaged=counts["cache_damaged"],
        )
