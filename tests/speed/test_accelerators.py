"""The benchmarks of accelerators: the search for how many are busy, and what a GPU's figures are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches import accelerators, gpu
from benches.accelerators import WAYS, Workload, most_busy, run_accelerators
from benches.results import Run

TINY = Workload("tiny", 1000, 4, 0.01, records=64, steps=40)


MOST = accelerators.MOST


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7, 16, 31, MOST, MOST + 100])
@pytest.mark.parametrize("guess", [0, 20, 2 * MOST])
@pytest.mark.parametrize("is_steady", [True, False])
def test_the_most_accelerators_that_are_busy_are_found(limit: int, guess: int, is_steady: bool) -> None:
    """Too many accelerators share what the machine delivers, or they fail together, such as without enough memory."""
    tried: list[int] = []

    def share(count: int) -> float:
        tried.append(count)
        return 1.0 if count <= limit else is_steady * 0.89 * limit / count

    found = most_busy(share, MOST, lambda: guess)
    assert min(limit, MOST) * 15 / 16 <= found <= min(limit, MOST)
    assert len(tried) == len(set(tried)) <= 26


def test_a_good_guess_saves_runs() -> None:
    tried: list[int] = []

    def share(count: int) -> float:
        tried.append(count)
        return min(1.0, 180 / count)

    assert 15 / 16 * 200 <= most_busy(share, MOST, lambda: 230) <= 200
    assert len(tried) <= 5


@pytest.mark.framework
@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: way.suffix)
def test_accelerators_compute_and_wait(way: accelerators.Way, tmp_path: Path) -> None:
    """Waiting can only make the steps take longer than computing."""
    path = tmp_path / f"train{way.suffix}"
    way.write(path, TINY)
    seconds = run_accelerators(way, path, TINY, 2)
    assert seconds is not None
    assert len(seconds) == 2
    assert min(seconds) > TINY.steps * TINY.computation_seconds


def test_a_run_is_a_part_of_one_epoch() -> None:
    for workload in [*accelerators.WORKLOADS, *map(accelerators.reduced, accelerators.WORKLOADS), TINY]:
        batches = workload.records * workload.repeats // workload.batch
        assert batches > 1 + workload.untimed + workload.steps


@pytest.mark.framework
def test_an_accelerator_that_fails_is_no_figure(tmp_path: Path) -> None:
    assert run_accelerators(WAYS[0], tmp_path / "missing.ffr", TINY, 2) is None


@pytest.mark.framework
def test_without_a_gpu_the_benchmark_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(Run(tmp_path)) is None
    assert "there is no GPU that PyTorch can use" in capsys.readouterr().out


@pytest.mark.framework
def test_records_on_their_way_to_a_device_are_checked_and_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is the processor here: everything runs but the copy."""
    import torch

    monkeypatch.setattr(gpu, "DEVICE", "cpu")
    monkeypatch.setattr(gpu, "BATCH_BYTES", 500_000)
    monkeypatch.setattr(gpu, "DEFAULT", gpu.setting(None, 500_000))
    monkeypatch.setattr(gpu, "plain_copy", lambda: 10.0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    found = gpu.measure(Run(tmp_path, rounds=1, quick=True), "100 KB", 10_000, 3_000_000)
    assert set(found["formats"]) == {"FFRecord", "ArrayRecord"}
    for rows in found["formats"].values():
        assert set(rows) == {gpu.DEFAULT, gpu.ALONE, gpu.UNCHECKED}
        assert all(row["epoch"] > 0 for row in rows.values())
    assert found["bare"] == 10.0
    assert list(tmp_path.iterdir()) == []
    assert "goal 90% of the copy" in capsys.readouterr().out


def test_the_share_of_a_plain_copy_is_compared_with_the_goal(capsys: pytest.CaptureFixture[str]) -> None:
    def rows(default: float, best: float) -> dict[str, dict[str, float]]:
        return {
            gpu.DEFAULT: {"epoch": default - 1, "steady": default},
            gpu.setting(8, 64_000_000): {"epoch": best - 1, "steady": best},
        }

    found = {"bare": 50.0, "formats": {"FFRecord": rows(46, 48), "ArrayRecord": rows(40, 49)}}
    gpu.report("100 KB", found)
    told = capsys.readouterr().out
    assert "FFRecord: goal 90% of the copy: reached 92%" in told
    assert "ArrayRecord: goal 90% of the copy: missed, 80%" in told


def test_every_size_has_a_goal() -> None:
    from benches.goals import GPU_SHARE

    assert set(GPU_SHARE) == set(gpu.SIZES)
