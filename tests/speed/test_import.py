"""What `import anyrecord` costs, counted in modules and instructions: the clock would depend on the machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import anyrecord
import pytest
from children import python

MODULES = 100
"""It was 78 when this was written, 34 of them from the standard library."""
STARTS = 6
"""How many starts of Python an import may cost. It was 4.5: a start takes 28 million instructions, the import 124."""


def test_import_loads_few_modules() -> None:
    script = "import sys; before = set(sys.modules); import anyrecord; print(*set(sys.modules) - before)"
    loaded = python(script).split()
    assert len(loaded) <= MODULES, sorted(loaded)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind counts the instructions")
def test_import_costs_a_few_starts_of_python() -> None:
    here = str(Path(anyrecord.__file__).parents[1])
    start = instructions(f"import sys; sys.path.insert(0, {here!r})")
    both = instructions(f"import sys; sys.path.insert(0, {here!r}); import anyrecord")
    assert start < both < (1 + STARTS) * start, f"{start:,} instructions, {both:,} with the import"


def instructions(script: str) -> int:
    """Counted in a Python without site-packages and hash randomization. A first run leaves compiled modules behind."""
    variables = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-S", "-c", script]
    subprocess.run(command, env=variables, check=True)
    counter = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    said = subprocess.run([*counter, *command], env=variables, capture_output=True, text=True, check=True).stderr
    found = re.search(r"Collected : (\d+)", said)
    assert found, said
    return int(found[1])
