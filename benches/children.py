"""Runs jobs in separate processes, to measure the memory of each, or what a new process takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

PRELUDE = f"""
import json, sys, time
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
"""
PRELUDE += """
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

def ready():
    # Waits until all children of `ask_together` are ready.
    print("ready", flush=True)
    sys.stdin.readline()
"""


def ask(script: str, *arguments: object) -> dict[str, Any]:
    """Runs a script and returns its answer.

    The script can call `memory()`, in MB, and `answer(name=value)`. Its arguments are in `sys.argv[1:]`.
    """
    return last_line(subprocess.run(command(script, arguments), capture_output=True, text=True, check=False))


def ask_together(script: str, calls: Sequence[Sequence[object]]) -> list[dict[str, Any]]:
    """Runs a script in one process for each list of arguments, all at the same time. Returns their answers.

    The script also calls `ready()`, which returns when all of them have called it.
    """
    with ExitStack() as running:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        children = [
            running.enter_context(subprocess.Popen(command(script, call), text=True, **pipes)) for call in calls
        ]
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        for child in children:
            assert child.stdin is not None
            try:
                child.stdin.write("\n")
                child.stdin.flush()
            except BrokenPipeError:
                pass  # it has failed, which its status tells below
        ended = []
        for child in children:
            output, errors = child.communicate()
            ended.append(subprocess.CompletedProcess(child.args, child.returncode, output, errors))
    return [last_line(child) for child in ended]


def command(script: str, arguments: Sequence[object]) -> list[str]:
    return [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]


def last_line(child: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The answer of a child process that has ended."""
    if child.returncode != 0:
        raise SystemExit(f"a child process ended with status {child.returncode}:\n{child.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return found
