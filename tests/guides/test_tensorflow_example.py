"""The example that reads an epoch with TensorFlow, small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.framework

EXAMPLE = Path(__file__).parents[2] / "examples" / "tensorflow_epoch.py"


def test_every_way_reads_every_record() -> None:
    command = [sys.executable, str(EXAMPLE), "--records", "1000", "--rounds", "1"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[0] == "1,000 records of 1000 bytes, in batches of 256"
    assert told.stdout.count("records/s") == 8
