"""Jobs in processes of their own, so that their memory is their own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

PRELUDE = """
import json, sys, time

def memory():
    # Not what getrusage tells: that begins with the memory of the process that started this one.
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
    """What a script answers. It has `memory()` in MB, `answer(name=value)`, and its arguments in `sys.argv[1:]`."""
    command = [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]
    return last_line(subprocess.run(command, capture_output=True, text=True, check=False))


def last_line(told: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The answer of a child that has ended."""
    if told.returncode != 0:
        raise SystemExit(f"a child ended with {told.returncode}:\n{told.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found
