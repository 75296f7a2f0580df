"""The benchmarks of accelerators: the search for how many are busy, and what a GPU's figures are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches import accelerators, gpu
from benches.accelerators import WAYS, Workload, most_busy, utilisation
from benches.results import Run

TINY = Workload("tiny", 1000, 4, 0.01, records=64, steps=40)


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7, 16, 31, accelerators.MOST, accelerators.MOST + 100])
def test_the_most_accelerators_that_are_busy_are_found(limit: int) -> None:
    tried: list[int] = []

    def is_busy(count: int) -> bool:
        tried.append(count)
        return count <= limit

    found = most_busy(is_busy)
    assert min(limit, accelerators.MOST) * 15 / 16 <= found <= min(limit, accelerators.MOST)
    assert len(tried) == len(set(tried)) <= 18


@pytest.mark.framework
@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: way.suffix)
def test_accelerators_compute_and_wait(way: accelerators.Way, tmp_path: Path) -> None:
    """Sixteen batches are an epoch, so it goes on after one. Waiting can only make the share smaller than 1."""
    path = tmp_path / f"train{way.suffix}"
    way.write(path, TINY)
    share = utilisation(way, path, TINY, 2)
    assert share is not None
    assert 0 < share < 1


@pytest.mark.framework
def test_an_accelerator_that_fails_is_no_figure(tmp_path: Path) -> None:
    assert utilisation(WAYS[0], tmp_path / "missing.ffr", TINY, 2) is None


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
    monkeypatch.setattr(gpu, "SECONDS", 0.01)
    monkeypatch.setattr(gpu, "plain_copy", lambda batch_bytes: 10.0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    found = gpu.measure(Run(tmp_path, rounds=1, quick=True), "100 KB", 10_000, 3_000_000)
    assert set(found["formats"]) == {"FFRecord", "ArrayRecord"}
    for rows in found["formats"].values():
        assert rows[gpu.DEFAULT]["epochs"] > 0
    assert found["bare"] == 10.0
    assert list(tmp_path.iterdir()) == []
    assert "goal 90% of the copy" in capsys.readouterr().out


def test_the_share_of_a_plain_copy_is_compared_with_the_goal(capsys: pytest.CaptureFixture[str]) -> None:
    def rows(default: float, best: float) -> dict[str, dict[str, float]]:
        return {
            gpu.DEFAULT: {"epochs": default - 1, "steady": default},
            gpu.setting(8, 64_000_000): {"epochs": best - 1, "steady": best},
        }

    found = {"bare": 50.0, "bare by batch": {}, "formats": {"FFRecord": rows(46, 48), "ArrayRecord": rows(40, 49)}}
    gpu.report("100 KB", found)
    told = capsys.readouterr().out
    assert "FFRecord: goal 90% of the copy: reached 92%; the fastest setting: 8 threads, 64 MB" in told
    assert "ArrayRecord: goal 90% of the copy: missed, 80%" in told


def test_every_size_has_a_goal() -> None:
    from benches.goals import GPU_SHARE

    assert set(GPU_SHARE) == set(gpu.SIZES)
