"""`ShardPlan`: each record in one shard, whole chunks, equal bytes, the same everywhere, and no memory."""

from __future__ import annotations

import pickle
import random
import tracemalloc
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import Records, ShardPlan
from children import python

FORMATS: list[tuple[str, dict[str, Any]]] = [
    ("a.recordio", {"chunk_bytes": 2000}),
    ("a.ffr", {}),
    ("a.tfrecord", {}),
    ("b.tfrecord", {"codec": "gzip"}),
    ("a.array_record", {"group_size": 1}),
    ("b.array_record", {"group_size": 8, "codec": "none"}),
]
VIEWS: dict[str, Any] = {
    "all": lambda records: records,
    "slice": lambda records: records[13:777],
    "neighbours": lambda records: anyrecord.concat([records[:345], records[345:]]),
    "parts": lambda records: anyrecord.concat([records[100:200], records[13:345], records])[20:1200],
    "none": lambda records: records[:0],
    "one": lambda records: records[7:8],
}
SIZES: list[dict[str, int]] = [{"shard_bytes": 5000}, {"shard_bytes": 64}, {"shard_records": 50}, {"shard_records": 1}]


@pytest.fixture(params=FORMATS, ids=lambda param: param[0])
def records(request: pytest.FixtureRequest) -> Records:
    name, options = request.param
    return written(Path(name), options)


def written(path: Path, options: dict[str, Any]) -> Records:
    sizes = random.Random(4)
    with anyrecord.create(path, **options) as out:
        out.write_many(b"%d" % i + sizes.randbytes(sizes.choice([0, 9, 99, 300])) for i in range(1000))
    return anyrecord.open(path)


def ranges(plan: ShardPlan) -> list[tuple[int, int]]:
    return sorted((shard.start, shard.stop) for shard in plan)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_each_record_is_in_one_shard_and_no_chunk_in_two(records: Records, view: str, size: dict[str, int]) -> None:
    part = VIEWS[view](records)
    plan = ShardPlan(part, seed=3, **size)
    position = 0
    for start, stop in ranges(plan):
        assert start == position <= stop
        position = stop
        if 0 < start < stop and view != "parts":
            # A gzip stream is one chunk to the storage, but its records are cut apart without a cost.
            assert part.locate(start - 1).chunk != part.locate(start).chunk
    assert position == len(part)
    assert sum(shard.bytes for shard in plan) == plan.num_bytes
    assert [shard.number for shard in plan] == list(range(len(plan)))


def test_shards_have_about_the_same_bytes(records: Records) -> None:
    plan = ShardPlan(records, shard_bytes=10_000)
    largest_chunk = max(shard.bytes for shard in ShardPlan(records, shard_records=1))
    mean = plan.num_bytes / len(plan)
    assert mean <= 10_000
    assert len(plan) > 5
    for shard in plan:
        assert abs(shard.bytes - mean) <= largest_chunk + len(records) / len(plan)
        assert len(shard) > 0


def test_bytes_are_balanced_where_records_become_larger() -> None:
    with anyrecord.create("a.ffr") as out:
        out.write_many(bytes(10 if i < 5000 else 1000) for i in range(10_000))
    plan = ShardPlan(anyrecord.open("a.ffr"), shard_records=100)
    assert len(plan) == 100
    sizes = [shard.bytes for shard in plan]
    assert max(sizes) < 1.1 * min(sizes)
    assert len(plan[0]) > 40 * len(plan[99])


def test_equal_records_give_exactly_the_number_that_was_asked_for() -> None:
    with anyrecord.create("a.ffr") as out:
        out.write_many(bytes(10) for _ in range(1000))
    assert {len(shard) for shard in ShardPlan(anyrecord.open("a.ffr"), shard_records=100)} == {100}
    assert {len(shard) for shard in ShardPlan(anyrecord.open("a.ffr"), shard_bytes=1000)} == {100}


def test_records_of_zero_bytes_are_divided_too() -> None:
    with anyrecord.create("a.ffr") as out:
        out.write_many(b"" for _ in range(1000))
    plan = ShardPlan(anyrecord.open("a.ffr"), shard_records=100)
    assert {len(shard) for shard in plan} <= {99, 100, 101}


def test_a_chunk_larger_than_a_shard_leaves_empty_shards() -> None:
    with anyrecord.create("a.ffr") as out:
        out.write_many(bytes(100_000 if i == 500 else 10) for i in range(1000))
    plan = ShardPlan(anyrecord.open("a.ffr"), shard_bytes=1000)
    assert ranges(plan)[0][0] == 0
    assert sum(len(shard) == 0 for shard in plan) in range(90, 100)
    assert sum(len(shard) for shard in plan) == 1000


def test_shuffled_and_mixed_records_are_divided_by_number(records: Records) -> None:
    for view in (records.shuffle(3), records[::2], records[::-1], anyrecord.mix([records, records], [1, 2])):
        plan = ShardPlan(view, shard_records=30)
        assert {len(shard) for shard in plan} <= {29, 30, 31, 27, 28}
        assert ranges(plan)[-1][1] == len(view)
        assert len(ShardPlan(view, shard_bytes=1 << 40)) == 1


def test_many_files_are_one_line() -> None:
    for number in range(30):
        with anyrecord.create(f"part-{number:02d}.recordio", chunk_bytes=300) as out:
            out.write_many(b"%d" % i for i in range(number * 7))
    records = anyrecord.open("part-*.recordio")
    plan = ShardPlan(records, seed=1, shard_bytes=8000)
    position = 0
    for start, stop in ranges(plan):
        assert start == position < stop
        position = stop
    assert position == len(records)


def test_seed_and_epoch_decide_the_order_only(records: Records) -> None:
    plans = [ShardPlan(records, seed=seed, epoch=epoch, shard_bytes=3000) for seed in (0, 1) for epoch in (0, 1)]
    plain = ShardPlan(records, shard_bytes=3000)
    assert len({tuple(shard.start for shard in plan) for plan in [*plans, plain]}) == 5
    assert len({plan.fingerprint for plan in [*plans, plain]}) == 5
    assert all(ranges(plan) == ranges(plain) for plan in plans)
    assert [shard.start for shard in plain] == sorted(shard.start for shard in plain)


def test_another_process_has_the_same_plan(records: Records) -> None:
    plan = ShardPlan(records, seed=3, epoch=2, shard_bytes=4000)
    script = f"""if True:
        import anyrecord, pathlib
        path = {records.paths[0]!r}
        pathlib.Path("elsewhere").mkdir()
        copy = pathlib.Path("elsewhere") / path
        copy.write_bytes(pathlib.Path(path).read_bytes())
        plan = anyrecord.ShardPlan(anyrecord.open(copy), seed=3, epoch=2, shard_bytes=4000)
        print(plan.fingerprint, *[shard.start for shard in plan])
    """
    fingerprint, *starts = python(script).split()
    assert fingerprint == plan.fingerprint
    assert [int(start) for start in starts] == [shard.start for shard in plan]
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert list(again) == list(plan)


def test_other_data_has_another_fingerprint() -> None:
    found = set()
    for content in (b"a", b"b"):
        for name in ("one.ffr", "two.ffr"):
            with anyrecord.create(name, overwrite=True) as out:
                out.write_many(content for _ in range(9))
            found.add(ShardPlan(anyrecord.open(name), shard_records=2).fingerprint)
    assert len(found) == 4


def test_ten_million_shards_take_no_memory() -> None:
    with anyrecord.create("a.ffr") as out:
        out.write_many(b"%d" % i for i in range(100_000))
    records = anyrecord.concat([anyrecord.open("a.ffr")] * 100)
    tracemalloc.start()
    try:
        plan = ShardPlan(records, seed=7, shard_records=1)
        assert len(plan) == 10_000_000
        numbers = range(0, 10_000_000, 99_991)
        assert all(len(plan[number]) == 1 for number in numbers)
        assert len({plan[number].start for number in numbers}) == len(numbers)
        queue = anyrecord.ShardQueue(plan, store := anyrecord.MemoryStore())
        for _ in range(20):
            lease = queue.claim()
            assert lease is not None
        assert queue.status().waiting == 10_000_000 - 20
        assert sum(len(value) for value in store._values.values()) < 20_000
        assert tracemalloc.get_traced_memory()[0] < 300_000
    finally:
        tracemalloc.stop()


def test_wrong_arguments_are_refused(records: Records) -> None:
    with pytest.raises(TypeError, match=r"a ShardPlan takes records from anyrecord.open, not list"):
        ShardPlan([b"a"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="exclude each other"):
        ShardPlan(records, shard_records=1, shard_bytes=1)
    with pytest.raises(ValueError, match="shard_bytes=0 is not valid"):
        ShardPlan(records, shard_bytes=0)
    with pytest.raises(IndexError, match="there is no shard 3: the plan has"):
        ShardPlan(records[:1])[3]
    assert ShardPlan(records[:9], shard_records=3)[-1:][0].stop == 9
    assert len(ShardPlan(records.map(len))) == 1
