"""The examples for torchrun: ranks are killed and restarted, and the job ends with another number of ranks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.framework

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_SECONDS = 500.0


def told_by(example: str) -> list[str]:
    command = [sys.executable, str(EXAMPLES / example)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


def test_the_sampler_continues_exactly() -> None:
    told = told_by("torchrun_sampler.py")
    # PyTorch sometimes aborts a rank at its exit, after the last step. torchrun restarts it, and nothing is left to do.
    while "  3 ranks begin at step 100" in told:
        at = told.index("  3 ranks begin at step 100")
        assert told[at + 1] == told[at - 1]
        del told[at : at + 2]
    assert told == [
        "torchrun with 2 ranks, which it restarts once",
        "  2 ranks begin at step 0",
        "  rank 1 is killed in step 20",
        # Rank 0 may have saved that step, or was ended before.
        *_any_of("  2 ranks begin at step {}", 19, 20),
        "  rank 1 is killed in step 70",
        "torchrun with 3 ranks",
        *_any_of("  3 ranks begin at step {}", 69, 70),
        "  done after 100 steps, the last loss is 0.0000",
        "epoch 0: each of the 600 records exactly once",
        "epoch 1: each of the 600 records exactly once",
    ]


def test_no_record_of_a_shard_is_lost() -> None:
    told = told_by("torchrun_shards.py")
    assert [line for line in told if "killed" in line] == [
        "  rank 1 is killed in step 10",
        "  rank 1 is killed in step 25",
    ]
    assert told[-2].endswith(": 30 of 30 shards done (100 %)")
    assert re.fullmatch(r"600 records: 0 missing, \d+ came again", told[-1])


class _AnyOf:
    def __init__(self, lines: set[str]) -> None:
        self.lines = lines

    def __eq__(self, other: object) -> bool:
        return other in self.lines

    def __repr__(self) -> str:
        return f"one of {self.lines}"


def _any_of(line: str, *numbers: int) -> list[_AnyOf]:
    return [_AnyOf({line.format(number) for number in numbers})]
