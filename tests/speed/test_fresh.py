"""Benchmarks in new processes: what is measured, what is compared, and which goals come out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches import first_epoch, fresh
from benches.children import ask_together
from benches.page_cache import share_in_memory
from benches.results import Run
from benches.timing import BATCH
from benches.workloads import WORKLOADS


def test_a_new_process_reads_every_way_of_our_stores(tmp_path: Path) -> None:
    names = [*fresh.OF_BATCHES, "anyrecord array g1 zstd"]
    figures = fresh.measure(fresh.stores(names), fresh.WAYS, WORKLOADS[0].make(500), tmp_path, 1)
    assert list(figures) == names
    for row in figures.values():
        assert set(row) == set(fresh.WAYS)
        assert all(figure > 0 for figure in row.values())


def test_the_goals_of_new_processes() -> None:
    figures = {
        "mmap slice": {"single": 1.0, "batch": 1.0, "in order": 1.0},
        "bagz raw": {"single": 2.0, "batch": 9.0, "in order": 4.0},
        "lmdb": {"single": 3.0, "batch": 3.0, "in order": 2.0},
        "anyrecord ffrecord": {"single": 1.0, "batch": 4.0, "in order": 1.2},
    }
    found = {str(outcome) for outcome in fresh.outcomes({"figures": {"1 MB": figures}})}
    beside = "1 MB, anyrecord ffrecord"
    assert found == {
        f"reached  {beside}, single, against the fastest other store: 2.00x, goal at least 1.00x",
        f"missed   {beside}, batch, against the fastest other store: 0.75x, goal at least 1.00x",
        f"reached  {beside}, in order, against the fastest other store: 1.67x, goal at least 1.00x",
        f"missed   {beside}: a record in a batch beside a single one: 4.00x, goal at most 1.00x",
        f"reached  {beside}: an iteration beside slices of a map: 1.20x, goal at most 1.30x",
    }


def test_workers_share_an_epoch(tmp_path: Path) -> None:
    count = 3 * BATCH
    for store in first_epoch.stores()[:2]:
        store.settle(tmp_path)
        store.write(first_epoch.make(count, 50))
        assert len(first_epoch.files_of(store)) == (first_epoch.SHARDS if "16 files" in store.name else 1)
        for workers in first_epoch.WORKERS:
            found = first_epoch.read_epoch(first_epoch.Cell(store, "batch", workers), count)
            assert 0 < found["first"] <= found["seconds"]


def test_every_record_is_read_once_by_one_of_the_workers(tmp_path: Path) -> None:
    read: list[int] = []

    class Remembering(first_epoch.Shards):
        def batch(self, indices: object) -> list[bytes]:
            assert isinstance(indices, list)
            read.extend(indices)
            return super().batch(indices)

    store = Remembering("anyrecord ffrecord", "one.ffr")
    store.settle(tmp_path)
    store.write(first_epoch.make(1000, 50))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(first_epoch, "stores", lambda: [store])
        for rank in range(4):
            first_epoch.epoch(lambda: None, store.name, str(tmp_path), "batch", "1000", str(rank), "4")
    assert sorted(read) == list(range(1000)) != read


def test_a_file_that_stays_in_memory_ends_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "warm"
    path.write_bytes(bytes(100_000))
    path.read_bytes()
    if share_in_memory(path) is None:
        pytest.skip("this system does not say what is in the page cache")
    assert share_in_memory(path) == 1
    monkeypatch.setattr(first_epoch, "make_cold", lambda run, path: None)
    with pytest.raises(SystemExit, match=r"100% of .*warm stay in the page cache"):
        first_epoch.make_all_cold(Run(tmp_path), [path])


def test_the_goals_of_a_cold_epoch() -> None:
    ours = {"seconds": 3.0, "first": 0.02, "read": 1.0, "warm": 1.0}
    rows = {
        "anyrecord ffrecord": {"batch": {"1": ours}},
        "bagz": {"single": {"1": {"seconds": 1.0, "first": 1.0}}},
        "lmdb": {"batch": {"1": {"seconds": 6.0, "first": 1.0}}},
    }
    what = "4 KB, anyrecord ffrecord, batch, 1 process"
    assert [str(outcome) for outcome in first_epoch.outcomes({"4 KB": {"rows": rows}})] == [
        f"missed   {what}: of the reference: 1.50x, goal at most 1.30x",
        f"reached  {what}: first batch: 0.02 s, goal at most 0.1 s",
        f"reached  {what}: against the fastest peer: 2.00x, goal at least 1.00x",
    ]


def test_children_wait_for_each_other_and_failures_are_told() -> None:
    clock = "time.perf_counter()"
    script = f"before = {clock}\nready()\nanswer(before=before, after={clock}, given=sys.argv[1])"
    answers = ask_together(script, [["a"], ["b"], ["c"]])
    assert [answer["given"] for answer in answers] == ["a", "b", "c"]
    assert max(answer["before"] for answer in answers) < min(answer["after"] for answer in answers)
    with pytest.raises(SystemExit, match="status 7"):
        ask_together("if sys.argv[1] == 'b': sys.exit(7)\nready()\nanswer()", [["a"], ["b"]])
