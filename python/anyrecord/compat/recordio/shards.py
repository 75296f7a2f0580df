"""`shard_plan` and `new_queue_scanner`: records in shards, which workers get from a queue."""

from __future__ import annotations

import anyrecord
from anyrecord.compat.recordio.filelist import FileList
from anyrecord.compat.recordio.index import Index
from anyrecord.compat.recordio.scanner import RangeScanner

__all__ = ["new_queue_scanner", "shard_plan"]


def shard_plan(
    files: FileList | Index,
    seed: int | None = None,
    epoch: int = 0,
    *,
    shard_records: int | None = None,
    shard_bytes: int | None = None,
) -> anyrecord.ShardPlan:
    """Divides the records of a list of files, or of an index, into shards: an `anyrecord.ShardPlan`.

    The arguments are those of `anyrecord.ShardPlan`.
    """
    return anyrecord.ShardPlan(
        _records_of(files), seed=seed, epoch=epoch, shard_records=shard_records, shard_bytes=shard_bytes
    )


def new_queue_scanner(files: FileList | Index, queue: anyrecord.ShardQueue) -> RangeScanner:
    """Returns a scanner of the records of all shards that this worker gets. Other workers get the other shards.

    >>> import anyrecord
    >>> from anyrecord.compat.recordio import FileList, Writer, new_queue_scanner, shard_plan
    >>> for path in ("a.recordio", "b.recordio"):
    ...     with Writer(path) as writer:
    ...         for number in range(3):
    ...             writer.write(path[:1].encode() + b"%d" % number)
    >>> files = FileList(["a.recordio", "b.recordio"])
    >>> queue = anyrecord.ShardQueue(shard_plan(files, shard_records=3), anyrecord.MemoryStore())
    >>> scanner = new_queue_scanner(files, queue)
    >>> while scanner.scan():
    ...     print(scanner.record())
    b'a0'
    b'a1'
    b'a2'
    b'b0'
    b'b1'
    b'b2'
    >>> scanner.error() is None, queue.is_done()
    (True, True)

    It claims shards, renews their leases and completes them as `anyrecord.elastic` does, and ends when all shards are
    done. `close` gives the current shard back.
    """
    scanner = _QueueScanner()
    scanner._records = scanner._loop = anyrecord.elastic(_records_of(files), queue)
    return scanner


class _QueueScanner(RangeScanner):
    _loop: anyrecord.ElasticRecords[bytes]

    def scan(self) -> bool:
        """Moves to the next record. Returns False at the end and at an error, which gives the current shard back."""
        is_there = super().scan()
        if not is_there:
            self._loop.close()
        return is_there

    def close(self) -> None:
        """Closes the scanner and gives the current shard back. A second call does nothing."""
        super().close()
        self._loop.close()


def _records_of(files: FileList | Index) -> anyrecord.Records:
    if not isinstance(files, FileList | Index):
        raise TypeError(f"files must be a FileList or an Index, not {type(files).__name__}")
    records = files._opened()
    return anyrecord.open(b"", format="recordio") if records is None else records
