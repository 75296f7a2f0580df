"""Counts of instructions beside their baseline: what fails, what is only told."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from benches import baseline, instructions
from benches.baseline import Baseline

OLD = {"read": 1000.0, "write": 500.0}
HERE = {"rustc": "rustc 1.95.0", "target": "x86_64-unknown-linux-gnu", "processor": "avx avx2"}


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (OLD, []),
        ({"read": 1030.0, "write": 515.0}, []),
        ({"read": 1031.0, "write": 500.0}, ["read: 1,031 instructions a record, 1,000 in the baseline: +3.1 % SLOWER"]),
        ({"read": 500.0, "write": 100.0}, []),
        ({"read": 500.0, "write": 520.0}, ["write: 520 instructions a record, 500 in the baseline: +4.0 % SLOWER"]),
        ({"read": 1000.0}, ["write: not counted, 500 in the baseline"]),
        ({**OLD, "batch": 7.0}, ["batch: not in the baseline"]),
        (
            {"read": 2000.0, "batch": 7.0},
            [
                "read: 2,000 instructions a record, 1,000 in the baseline: +100.0 % SLOWER",
                "write: not counted, 500 in the baseline",
                "batch: not in the baseline",
            ],
        ),
    ],
    ids=["same", "at", "above", "below", "one of each", "not counted", "new", "all at once"],
)
def test_what_is_above_its_baseline_or_cannot_be_compared_fails(
    found: dict[str, float], wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert baseline.check(found, HERE, Baseline(HERE, OLD)) == wrong
    printed = capsys.readouterr().out
    for line in wrong:
        assert line in printed
    assert ("FAILED" in printed) == bool(wrong)
    assert "make instructions-baseline" in printed


@pytest.mark.parametrize("figure", [1e300, 1031.0, 1.0])
@pytest.mark.parametrize(
    ("counted_with", "line"),
    [
        ({**HERE, "rustc": "rustc 1.94.0"}, "rustc: rustc 1.94.0 in the baseline, rustc 1.95.0 here"),
        ({**HERE, "processor": "avx"}, "processor: avx in the baseline, avx avx2 here"),
        ({**HERE, "valgrind": "valgrind-3.19.0"}, "valgrind: valgrind-3.19.0 in the baseline, nothing here"),
        ({}, "target: nothing in the baseline, x86_64-unknown-linux-gnu here"),
    ],
)
def test_a_baseline_of_another_toolchain_or_processor_is_told_and_never_fails(
    counted_with: dict[str, str], line: str, figure: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert baseline.check({"read": figure}, HERE, Baseline(counted_with, OLD)) == []
    printed = capsys.readouterr().out
    assert line in printed
    assert "another toolchain or processor" in printed
    assert "instructions-baseline" in printed


def test_improvements_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    baseline.check({"read": 900.0, "write": 499.0}, HERE, Baseline(HERE, OLD))
    read, write = capsys.readouterr().out.splitlines()[2:4]
    assert read.split() == ["read", "900.0", "1,000.0", "-10.0", "%", "faster"]
    assert write.split() == ["write", "499.0", "500.0", "-0.2", "%"]


def test_the_committed_baseline_has_every_figure_that_is_counted() -> None:
    counted = {
        f"{kind.name}, {size.name}, {way}"
        for size in instructions.SIZES
        for kind in instructions.KINDS
        for way in kind.ways
    }
    committed = baseline.load()
    assert set(committed.instructions) == counted
    assert set(committed.counted_with) == set(baseline.here())
    assert all(figure > 0 for figure in committed.instructions.values())


def test_a_saved_baseline_is_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "BASELINE", tmp_path / "instructions.json")
    baseline.save(Baseline(HERE, {"read": 1234.5678}))
    assert baseline.load() == Baseline(HERE, {"read": 1235.0})
    assert json.loads(baseline.BASELINE.read_text())["counted_with"] == HERE


@pytest.mark.parametrize("arguments", [[], ["--write"]])
def test_without_valgrind_the_check_says_how_to_install_it_and_passes(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["baseline", *arguments])
    if arguments:
        with pytest.raises(SystemExit, match="apt install valgrind"):
            baseline.main()
    else:
        baseline.main()
        told = capsys.readouterr().out
        assert "apt install valgrind" in told
        assert told.count(os.linesep) == 1


@pytest.mark.parametrize(("figure", "status"), [(1031.0, 1), (1029.0, None)])
def test_the_exit_status_tells_the_verdict(figure: float, status: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(sys, "argv", ["baseline"])
    monkeypatch.setattr(instructions, "hot_paths", lambda sizes: {"read": figure, "write": 500.0})
    monkeypatch.setattr(baseline, "here", lambda: HERE)
    monkeypatch.setattr(baseline, "load", lambda: Baseline(HERE, OLD))
    if status is None:
        baseline.main()
    else:
        with pytest.raises(SystemExit) as caught:
            baseline.main()
        assert caught.value.code == status


def test_what_depends_on_the_clock_is_named_as_the_core_names_it() -> None:
    module, function = instructions.BY_THE_CLOCK.split("::")
    sources = [path.read_text() for path in (instructions.ROOT / "crates" / "core" / "src").rglob("*.rs")]
    assert any(f"mod {module} {{" in text and f"fn {function}(" in text for text in sources)


def test_a_file_of_callgrind_without_a_sum_is_no_count() -> None:
    for part in ("events: Ir\n", "totals: 0\n"):
        with pytest.raises(SystemExit, match="without a total"):
            instructions.total(part)
