"""The example that trains on pictures: it is killed, goes on with other numbers of ranks, and has the same losses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.framework

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_pictures.py"


def test_a_killed_training_has_the_losses_of_one_that_was_never_killed() -> None:
    ran = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = ran.stdout.splitlines()
    assert len(told) == 6
    assert told[0] == "1 rank, never killed"
    assert told[3].endswith("differ by 0")
