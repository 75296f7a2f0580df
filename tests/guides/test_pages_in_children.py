"""Pages whose frameworks cannot be in one process with others, each in a process of its own."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.framework

ROOT = Path(__file__).parents[2]
IN_CHILDREN: tuple[tuple[str, ...], ...] = runpy.run_path(str(ROOT / "conftest.py"))["IN_CHILDREN"]


@pytest.mark.parametrize("pages", IN_CHILDREN, ids=lambda pages: Path(pages[0]).stem)
def test_the_code_of_the_pages_runs(pages: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *pages]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(pages)} passed" in done.stdout, done.stdout
