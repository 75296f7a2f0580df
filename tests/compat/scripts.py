"""Programs in processes of their own: what is imported under which name cannot be tested in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent


def run(
    *arguments: str, folder: Path | None = None, fails: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python, and asserts that it succeeds (or fails)."""
    inherited = {key: value for key, value in os.environ.items() if key != "ANYRECORD_COMPAT"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done


def run_text(program: str, folder: Path, *arguments: str, fails: bool = False, **environment: str) -> str:
    """Runs the text of a program from a file; returns what it prints (its errors if it has to fail)."""
    (folder / "program.py").write_text(dedent(program))
    done = run("program.py", *arguments, folder=folder, fails=fails, **environment)
    return done.stderr if fails else done.stdout
