"""The example of an epoch with Grain, small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.framework

EXAMPLE = Path(__file__).parents[2] / "examples" / "grain_epoch.py"


def test_the_example_reads_every_record_in_one_file_and_in_shards() -> None:
    command = [sys.executable, str(EXAMPLE), "--records", "2000", "--sample", "0.05"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0] == "2,000 records of 900 bytes: shuffled, mapped, in batches of 256"
    for what in ("Grain's own floor", "anyrecord with Grain, 1 file", "anyrecord with Grain, 64 shards"):
        assert any(line.startswith(what) and line.endswith("records/s") for line in lines), what
    assert sum("array_record with Grain" in line for line in lines) == 2
