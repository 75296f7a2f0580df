"""`on_error=` in threads, forked children, pickles and the workers of frameworks."""

from __future__ import annotations

import multiprocessing
import pickle
import random
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ChecksumError, Records
from anyrecord.sampling import ElasticLoader, ElasticSampler
from children import forked

from damage.files import KINDS, NUMBERS, POLICIES, RECORDS, N, expected, file_of

pytestmark = pytest.mark.filterwarnings("ignore::anyrecord.DamageWarning")

GROUPS = KINDS["array_record-brotli-groups"]
DAMAGED = {3, 17, 40}
LOST = GROUPS.lost(DAMAGED)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file.array_record"
    path.write_bytes(file_of(GROUPS, DAMAGED))
    return path


@pytest.mark.parametrize("policy", POLICIES)
def test_many_threads_read_around_the_same_damage_and_report_it_once(path: Path, policy: str) -> None:
    threads = 8
    for most in (None, len(LOST)):
        records = anyrecord.open(path, on_error=POLICIES[policy], max_errors=most, cache_bytes=0)
        start = threading.Barrier(threads)

        def read(number: int, records: Records = records, start: threading.Barrier = start) -> bool:
            source = random.Random(number)
            start.wait()
            for _ in range(5):
                wanted = source.sample(range(N), 30)
                if records[wanted] != expected(wanted, LOST, policy) or list(records) != expected(
                    range(N), LOST, policy
                ):
                    return False
            return True

        with ThreadPoolExecutor(threads) as pool:
            assert all(pool.map(read, range(threads)))
        assert sorted(skipped.index for skipped in records.skipped) == sorted(LOST)


def test_threads_that_share_an_iterator_get_each_record_once(path: Path) -> None:
    for policy in ("skip", "replace"):
        shared = iter(anyrecord.open(path, on_error=POLICIES[policy]))

        def drain(shared: Any = shared) -> list[bytes]:
            return list(shared)

        with ThreadPoolExecutor(4) as pool:
            found = [record for part in pool.map(lambda _: drain(), range(4)) for record in part]
        assert sorted(found) == sorted(expected(range(N), LOST, policy))


def test_a_forked_child_begins_with_nothing_skipped_and_the_whole_count(path: Path) -> None:
    records = anyrecord.open(path, on_error="skip", max_errors=len(LOST))
    list(records)
    assert len(records.skipped) == len(LOST)

    def child() -> tuple[int, list[bytes], int]:
        return len(records.skipped), list(records), len(records.skipped)

    assert forked(child) == (0, expected(range(N), LOST, "skip"), len(LOST))
    assert len(records.skipped) == len(LOST)


def test_a_pickle_has_the_policy_and_not_the_past(path: Path) -> None:
    for policy, on_error in POLICIES.items():
        records = anyrecord.open(path, on_error=on_error, max_errors=len(LOST))
        list(records)
        for view in (records, records.shuffle(3), records.map(bytes)):
            again = pickle.loads(pickle.dumps(view))
            assert again.skipped == []
            numbers = [NUMBERS[record] for record in anyrecord.open(file_of(GROUPS))]
            if view is not records and isinstance(view, Records):
                numbers = [NUMBERS[record] for record in anyrecord.open(file_of(GROUPS)).shuffle(3)]
            assert list(again) == expected(numbers, LOST, policy)
            assert {skipped.index for skipped in again.skipped} == LOST
    few = pickle.loads(pickle.dumps(anyrecord.open(path, on_error="skip", max_errors=2)))
    with pytest.raises(ChecksumError):
        list(few)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(anyrecord.open(path, on_error=lambda error: b""))


def test_a_pickle_of_a_concatenation_replaces_by_the_same_neighbours(tmp_path: Path) -> None:
    kind = KINDS["ffrecord"]
    for name, damaged in (("a", {N - 1}), ("b", {0, N - 1})):
        (tmp_path / f"{name}.ffr").write_bytes(file_of(kind, damaged))
    a, b = (anyrecord.open(tmp_path / f"{name}.ffr", on_error="replace") for name in "ab")
    for joined in (a + b, anyrecord.mix([a, b], [1, 1], seed=1), (a + b).shuffle(1)):
        assert list(pickle.loads(pickle.dumps(joined))) == list(joined)
    assert pickle.loads(pickle.dumps(a + b))[[N - 1, N, 2 * N - 1]] == [RECORDS[0], RECORDS[1], RECORDS[1]]


def read_all(records: Records) -> tuple[list[bytes], int]:
    batches = list(records.batches(10))
    return batches[0], len(records.skipped)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # where a process with threads is forked
def test_workers_of_pools_read_on_and_count_by_themselves(path: Path, method: str) -> None:
    records = anyrecord.open(path, on_error="replace", max_errors=len(LOST))
    context: Any = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        for batch, met in pool.map(read_all, [records] * 4):
            assert batch == expected(range(10), LOST, "replace")
            assert met == len(LOST)
    assert records.skipped == []


class Loader:
    """Stands in for a loader that reads batches by `__getitems__`."""

    def __init__(self, records: Records, sampler: ElasticSampler, batch_size: int) -> None:
        self.records, self.sampler, self.batch_size = records, sampler, batch_size

    def __iter__(self) -> Any:
        numbers = list(self.sampler)
        for i in range(0, len(numbers), self.batch_size):
            yield self.records.__getitems__(numbers[i : i + self.batch_size])


@pytest.mark.parametrize("policy", POLICIES)
def test_an_elastic_loader_counts_positions_and_not_what_is_left_of_them(path: Path, policy: str) -> None:
    good = anyrecord.open(file_of(GROUPS))
    bad = anyrecord.open(path, on_error=POLICIES[policy])
    states = []
    for records in (good, bad):
        loader = ElasticLoader(Loader(records, ElasticSampler(records, seed=1, rank=0, world=2), 4))
        states.append([(loader.state_dict(), batch) for batch in loader])
        states[-1].append((loader.state_dict(), []))
    assert [state for state, _ in states[0]] == [state for state, _ in states[1]]
    for (_, batch), (_, found) in zip(*states, strict=True):
        assert found == expected([NUMBERS[record] for record in batch], LOST, policy)


def keep(batch: list[bytes]) -> list[bytes]:
    return batch


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch, where a process with threads is forked
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("policy", POLICIES)
def test_workers_of_pytorch_read_on_and_the_states_are_those_of_the_undamaged_file(
    path: Path, policy: str, method: str
) -> None:
    from anyrecord.torch import ElasticLoader, ElasticSampler
    from torch.utils.data import DataLoader

    good = anyrecord.open(file_of(GROUPS))
    bad = anyrecord.open(path, on_error=POLICIES[policy])
    seen: list[list[tuple[Any, list[bytes]]]] = []
    for records, workers in ((good, 0), (bad, 2)):
        sampler = ElasticSampler(records, seed=1, rank=0, world=1)
        context = method if workers else None
        loader = ElasticLoader(
            DataLoader(
                records, 7, sampler=sampler, num_workers=workers, multiprocessing_context=context, collate_fn=keep
            )
        )
        seen.append([(loader.state_dict(), batch) for batch in loader])
    assert [state for state, _ in seen[0]] == [state for state, _ in seen[1]]
    for (_, batch), (_, found) in zip(*seen, strict=True):
        assert found == expected([NUMBERS[record] for record in batch], LOST, policy)
    default = DataLoader(anyrecord.open(path, on_error="replace").map(len), batch_size=7)
    assert [len(batch) for batch in default] == [7] * 8 + [4]  # equal steps: what default_collate needs


@pytest.mark.framework
def test_grain_reads_batches_on_and_takes_none_for_records_that_are_left_out(path: Path) -> None:
    import grain

    for policy in POLICIES:
        records = anyrecord.open(path, on_error=POLICIES[policy])
        dataset = grain.MapDataset.source(records).map(bytes.upper)
        numbers = range(10, 30)
        want = [[record.upper() for record in expected([number], LOST, policy)] for number in numbers]
        assert list(dataset._getitems(list(numbers))) == [record[0] if record else None for record in want]
