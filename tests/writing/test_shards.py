"""Many shards as one output: all appear at close, or none; an old set is replaced as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ClosedError
from anyrecord._shard_names import shard_paths

from writing.folders import names, temporary

RECORDS = [b"%d" % number for number in range(10)]


@pytest.fixture
def path(tmp_path: Path, suffix: str) -> Path:
    return tmp_path / f"train{suffix}"


def shard_names(path: Path, count: int) -> list[str]:
    return [Path(shard).name for shard in shard_paths(str(path), count)]


def contents(path: Path, count: int) -> list[list[bytes]]:
    """The records of each shard."""
    return [list(anyrecord.open(path.with_name(name))) for name in shard_names(path, count)]


@pytest.mark.parametrize(
    ("keywords", "dealt"),
    [
        ({"shards": 3}, [RECORDS[0::3], RECORDS[1::3], RECORDS[2::3]]),
        ({"shards": 12}, [[record] for record in RECORDS] + [[], []]),
        ({"shards": 1}, [RECORDS]),
        ({"shard_records": 4}, [RECORDS[:4], RECORDS[4:8], RECORDS[8:]]),
        ({"shard_records": 5}, [RECORDS[:5], RECORDS[5:]]),
        ({"shard_bytes": 6}, [RECORDS[:6], RECORDS[6:]]),
        ({"shard_bytes": 1}, [[record] for record in RECORDS]),
        ({"shards": 3, "num_records": 10}, [RECORDS[0::3], RECORDS[1::3], RECORDS[2::3]]),
        ({"shard_records": 4, "num_records": 10, "threads": 2}, [RECORDS[:4], RECORDS[4:8], RECORDS[8:]]),
    ],
)
def test_all_names_appear_at_close_and_none_before(
    path: Path, keywords: dict[str, Any], dealt: list[list[bytes]]
) -> None:
    out = anyrecord.create(path, **keywords)
    for record in RECORDS:
        out.write(record)
        assert names(path.parent) == temporary(path.parent)
    out.close()
    assert names(path.parent) == shard_names(path, len(dealt))
    assert contents(path, len(dealt)) == dealt
    together = anyrecord.open(f"{path}@{len(dealt)}")
    assert list(together) == [record for shard in dealt for record in shard]


def test_an_output_without_records_is_still_readable(path: Path) -> None:
    with anyrecord.create(path, shard_records=4):
        pass
    assert contents(path, 1) == [[]]


def test_an_existing_set_is_refused_at_once_whatever_its_count(path: Path) -> None:
    with anyrecord.create(path, shards=3) as out:
        out.write_many(RECORDS)
    before = names(path.parent)
    for count in (2, 3, 4):
        with pytest.raises(FileExistsError, match="overwrite=True to replace the 3 shards") as caught:
            anyrecord.create(path, shards=count)
        assert caught.value.filename == str(path.with_name(before[0]))
    assert names(path.parent) == before


@pytest.mark.parametrize("count", [2, 3, 5])
def test_overwriting_replaces_the_whole_set_at_close(path: Path, count: int) -> None:
    bystanders = [path.with_name(f"trainer-00000-of-00003{path.suffix}"), path]
    for other in bystanders:
        other.write_bytes(b"not of this set")
    with anyrecord.create(path, shards=3) as out:
        out.write_many(RECORDS)
    with anyrecord.create(path, shards=count, overwrite=True) as out:
        out.write_many(reversed(RECORDS))
        assert contents(path, 3) == [RECORDS[0::3], RECORDS[1::3], RECORDS[2::3]]
    assert names(path.parent) == sorted([*shard_names(path, count), *(other.name for other in bystanders)])
    assert contents(path, count) == [RECORDS[::-1][number::count] for number in range(count)]
    assert all(other.read_bytes() == b"not of this set" for other in bystanders)


def test_a_set_that_appears_meanwhile_is_not_overwritten(path: Path) -> None:
    first, second = anyrecord.create(path, shards=2), anyrecord.create(path, shards=2)
    first.write_many([b"first"] * 2)
    second.write_many([b"second"] * 2)
    second.close()
    with pytest.raises(FileExistsError) as caught:
        first.close()
    assert caught.value.filename == shard_paths(str(path), 2)[0]
    assert names(path.parent) == shard_names(path, 2)
    assert contents(path, 2) == [[b"second"], [b"second"]]


@pytest.mark.parametrize("blocked", [0, 1, 3])
@pytest.mark.parametrize("obstacle", ["folder", "file"])
@pytest.mark.parametrize("keywords", [{"shards": 4}, {"shard_records": 3}])
def test_a_failure_at_one_name_takes_back_the_ones_before(
    path: Path, blocked: int, obstacle: str, keywords: dict[str, Any]
) -> None:
    out = anyrecord.create(path, **keywords)
    out.write_many(RECORDS)
    in_the_way = path.with_name(shard_names(path, 4)[blocked])
    if obstacle == "folder":
        in_the_way.mkdir()
    else:
        in_the_way.write_bytes(b"somebody else's")
    with pytest.raises(FileExistsError) as caught:
        out.close()
    assert caught.value.filename == str(in_the_way)
    assert names(path.parent) == [in_the_way.name]
    assert in_the_way.is_dir() or in_the_way.read_bytes() == b"somebody else's"
    with pytest.raises(ClosedError, match="discarded after an error"):
        out.close()


def test_a_set_with_a_missing_member_is_refused_as_a_kill_in_between_would_leave_it(path: Path) -> None:
    with anyrecord.create(path, shards=3) as out:
        out.write_many(RECORDS)
    path.with_name(shard_names(path, 3)[1]).unlink()
    for source in (f"{path}@3", str(path.parent), str(path.with_name("train-*"))):
        with pytest.raises(FileNotFoundError, match="shard 1 of 3 is missing"):
            anyrecord.open(source)


def test_the_bytes_of_shards_are_the_same_for_any_number_of_threads(path: Path) -> None:
    written = []
    for threads in (None, 1, 4):
        with anyrecord.create(path, shards=3, threads=threads, overwrite=True) as out:
            out.write_many(bytes([number % 256]) * 1000 for number in range(10_000))
        written.append([path.with_name(name).read_bytes() for name in shard_names(path, 3)])
    assert written[0] == written[1] == written[2]


def test_samples_of_many_shards_wait_on_disk_and_those_of_a_few_in_memory(tmp_path: Path) -> None:
    record = bytes(600_000)
    for shards, on_disk in ((8, 0), (50, 20)):
        folder = tmp_path / str(shards)
        folder.mkdir()
        with anyrecord.create(folder / "a.ffr", shards=shards, durable=False) as out:
            for _ in range(6 * shards):
                out.write(record)
            spooled = [name for name in temporary(folder) if ".samples.tfrecord" in name]
            assert len(spooled) >= on_disk if on_disk else not spooled
        assert list(anyrecord.open(f"{folder}/a.ffr@{shards}")) == [record] * (6 * shards)
