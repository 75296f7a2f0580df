"""Runs jobs in separate processes, to measure the memory of each."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

PRELUDE = """
import json, sys, time

def memory():
    # Not from getrusage: its peak includes the memory of the parent process.
    found = {}
    with open("/proc/self/status") as status:
        for line in status:
            name, _, value = line.partition(":")
            if name in ("VmHWM", "VmRSS", "RssAnon", "RssFile"):
                found[name] = int(value.split()[0]) / 1024
    return found

def answer(**found):
    print(json.dumps(found))
"""


def ask(script: str, *arguments: object) -> dict[str, Any]:
    """Runs a script and returns its answer.

    The script can call `memory()`, in MB, and `answer(name=value)`. Its arguments are in `sys.argv[1:]`.
    """
    command = [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]
    return last_line(subprocess.run(command, capture_output=True, text=True, check=False))


def last_line(child: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The answer of a child process that has ended."""
    if child.returncode != 0:
        raise SystemExit(f"a child process ended with status {child.returncode}:\n{child.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return found
