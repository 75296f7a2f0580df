"""The scanners of the RecordIO drop-in over shards of a queue."""

from __future__ import annotations

import anyrecord
import pytest
from anyrecord import MemoryStore, ShardQueue
from anyrecord.compat.recordio import FileList, Index, Scanner, new_queue_scanner, shard_plan


@pytest.fixture
def files() -> FileList:
    for name in ("a", "b", "c"):
        with anyrecord.create(f"{name}.recordio", chunk_bytes=100) as out:
            out.write_many(b"%s%02d" % (name.encode(), number) for number in range(50))
    return FileList(["a.recordio", "b.recordio", "c.recordio"])


def test_a_scanner_goes_through_all_shards(files: FileList) -> None:
    queue = ShardQueue(shard_plan(files, seed=1, epoch=2, shard_records=10), MemoryStore())
    scanner = new_queue_scanner(files, queue)
    found = []
    while scanner.scan():
        found.append(scanner.record())
    assert scanner.error() is None
    assert sorted(found) == [b"%s%02d" % (name, number) for name in (b"a", b"b", b"c") for number in range(50)]
    assert queue.is_done()


def test_a_scanner_that_is_closed_gives_its_shard_back(files: FileList) -> None:
    queue = ShardQueue(shard_plan(files, shard_bytes=500), MemoryStore())
    with new_queue_scanner(files, queue) as scanner:
        assert scanner.scan()
    assert queue.status().doing == 0
    assert queue.status().done == 0
    with pytest.raises(RuntimeError, match="this scanner is closed"):
        scanner.scan()


def test_a_claimed_range_of_one_file_is_scanned(files: FileList) -> None:
    index = Index("b.recordio")
    queue = ShardQueue(shard_plan(index, shard_records=20), MemoryStore())
    found: list[bytes] = []
    while lease := queue.claim():
        with lease:
            found += Scanner("b.recordio", lease.shard.start, len(lease.shard), index)
    assert found == [b"b%02d" % number for number in range(50)]


def test_an_error_stops_the_scanner_and_gives_the_shard_back(files: FileList) -> None:
    with open("b.recordio", "r+b") as file:
        file.seek(300)
        file.write(b"\xff")
    queue = ShardQueue(shard_plan(files, shard_records=50), MemoryStore())
    scanner = new_queue_scanner(files, queue)
    while scanner.scan():
        pass
    assert isinstance(scanner.error(), RuntimeError)
    assert queue.status().doing == 0
    assert not queue.is_done()


def test_a_list_without_files_has_no_shards() -> None:
    files = FileList([])
    queue = ShardQueue(shard_plan(files), MemoryStore())
    assert not new_queue_scanner(files, queue).scan()
    with pytest.raises(TypeError, match="files must be a FileList or an Index, not str"):
        shard_plan("a.recordio")  # type: ignore[arg-type]
    assert len(anyrecord.ShardPlan(anyrecord.open(b"", format="recordio"))) == 0
