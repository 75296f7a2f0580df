"""The benchmark of loaders checks what they deliver, and says in which cells ours are not first."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benches import loaders
from benches.libraries.job import Job
from benches.libraries.processes import members, own_megabytes
from benches.loaders import Library, Workload, compared, measure, table
from benches.results import Run

SMALL = Workload("small", 300, 500, 32, spread=0.8)
PICTURES = Workload("pictures", 40, 20_000, 16, pictures=True)


def test_samples_have_the_sizes_that_were_asked_for() -> None:
    job = loaders.WORKLOADS[1].job(1)
    sizes = [len(job.sample(number)) for number in range(2000)]
    assert min(sizes) >= 20_000
    assert max(sizes) <= 180_000
    assert sum(sizes) / len(sizes) == pytest.approx(100_000, rel=0.05)
    assert len(set(sizes)) > 500


def test_rows_of_a_tensor_are_as_long_as_the_longest_sample_and_are_cut() -> None:
    import numpy

    job = SMALL.job(1)
    rows = numpy.zeros((job.count, 900), numpy.uint8)
    for number, sample in enumerate(job.samples()):
        rows[number, : len(sample)] = numpy.frombuffer(sample, numpy.uint8)

    class Tensor:
        def numpy(self) -> Any:
            return rows

    assert job.check([Tensor()])["repeated"] == 0
    rows[61, 100] ^= 1
    with pytest.raises(SystemExit, match="sample 61 has wrong bytes"):
        job.check([Tensor()])


def figures(warm: float, cold: float, first: float, peak: float, **more: Any) -> dict[str, Any]:
    def heat(seconds: float) -> dict[str, Any]:
        return {"seconds": seconds, "first": first, "disk": 1.0, "workers": 2, "tried": {"0": 9.0, "2": seconds}}

    row = {"version": "1", "peak": peak, "near": 0.01, "is_ours": False, "is_peer": False, "worker": "workers"}
    return {**row, "warm": heat(warm), "cold": heat(cold), **more}


def found(rows: dict[str, Any], *, pictures: bool = False) -> dict[str, Any]:
    return {"records": 1000, "batch": 10, "pictures": pictures, "rows": rows}


def test_cells_in_which_we_are_not_first_are_named() -> None:
    ours = figures(1.0, 4.0, 0.01, 300, is_ours=True)
    rows = {
        "anyrecord Loader": ours,
        "anyrecord in a DataLoader": figures(0.1, 0.1, 0.001, 100),  # no peer: it is ours too
        "A": figures(2.0, 3.0, 0.02, 330, is_peer=True),
        "B": figures(5.0, 8.0, 0.03, 360, is_peer=True),
    }
    assert compared(found(rows)) == [
        "anyrecord Loader, against the best of the others: warm samples/s 2.0x (A); warm first batch 2.0x (A); "
        "cold samples/s 0.75x (A); cold first batch 2.0x (A); memory 1.1x (A)",
        "not first: anyrecord Loader, cold samples/s: 0.75x, behind A",
    ]
    del rows["A"]
    assert compared(found(rows))[-1] == "first in every cell"
    assert compared(found({"anyrecord Loader": ours})) == ["no other library is installed"]


def test_pictures_are_compared_with_decoding_alone() -> None:
    rows = {"decoding alone": figures(1.0, 1.0, 0.01, 1), "anyrecord Loader": figures(1.5, 2.5, 0.01, 1, is_ours=True)}
    shown = dict(table(found(rows, pictures=True)))
    assert shown["decoding alone"][-2:] == ["-", "-"]
    assert shown["anyrecord Loader"][-2:] == ["+500 us", "+1500 us"]
    assert shown["anyrecord Loader"][0] == "667 (2 workers)"


def test_the_best_of_rounds_and_of_worker_counts_is_kept() -> None:
    library = Library("A", "a", "a")
    for workers, seconds, first in ((0, 3.0, 0.1), (2, 2.0, 0.4), (2, 2.5, 0.3)):
        library.note("warm", workers, {"seconds": seconds, "first": first, "disk": 0.0})
    assert library.best("warm") == (2, {"seconds": 2.0, "first": 0.3, "disk": 0.0})


def test_slow_starts_are_told_apart_from_slow_loaders() -> None:
    rows = {"compiles": figures(11.0, 11.0, 10.0, 1, is_peer=True), "B": figures(11.0, 11.0, 0.1, 1, is_peer=True)}
    assert loaders.slow_starts(found(rows)) == ["compiles: after its first batch 990 samples/s, warm"]


def test_the_memory_of_a_session_is_that_of_its_processes() -> None:
    session = list(members(os.getsid(0)))
    assert Path(f"/proc/{os.getpid()}") in session
    assert own_megabytes(Path("/proc/self")) > 1
    assert own_megabytes(Path("/proc/0")) == 0


@pytest.mark.framework
@pytest.mark.parametrize("workload", [SMALL, PICTURES], ids=["bytes", "pictures"])
@pytest.mark.parametrize("prefix", ["train.ffr", "train.array_record"])
@pytest.mark.parametrize("module", ["ours_loader", "ours_dataloader"])
def test_our_loaders_deliver_every_sample(module: str, prefix: str, workload: Workload, tmp_path: Path) -> None:
    job = replace(workload.job(1), folder=str(tmp_path), prefix=prefix)
    library: Any = importlib.import_module(f"benches.libraries.{module}")
    library.write(job)
    checked = job.check(library.reader(job)())
    assert checked["repeated"] == 0
    assert checked["near"] < 0.2


@pytest.mark.framework
def test_decoding_alone_decodes_every_picture() -> None:
    from benches.libraries import bare

    job = PICTURES.job(1)
    assert sum(map(job.samples_in, bare.reader(job)())) == job.count


@pytest.mark.framework
def test_a_run_has_all_figures_and_leaves_no_files(tmp_path: Path) -> None:
    library = Library("anyrecord Loader, FFRecord", "ours_loader", "torch", (0,), prefix="train.ffr")
    told = measure(Run(tmp_path, rounds=1), SMALL.job(1), [library])
    (row,) = told["rows"].values()
    assert row["is_ours"]
    assert row["peak"] > 20
    for heat in ("warm", "cold"):
        assert 0 < row[heat]["first"] <= row[heat]["seconds"]
    assert list(tmp_path.iterdir()) == []
    assert len(table(told)[0][1]) == len(loaders.columns(told))


def test_a_job_crosses_to_the_child_process_as_json() -> None:
    import json

    job = PICTURES.job(2)
    assert Job(**json.loads(job.to_json())) == job
