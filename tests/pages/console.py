"""Runs blocks of shell commands, and returns what each command printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NEVER_RUN = {"apt-get", "brew", "cargo", "docker", "git", "make", "pip", "sudo"}
"""Programs that install something or need a checkout."""

SECONDS = 240
"""A loaded machine is slow; a command that waits for input is an error."""

END = "end-of-command-4b8f"


@dataclass(frozen=True)
class Command:
    """One command of a block, with what the page says that it prints."""

    text: str
    output: str
    line: int
    """How many lines of the block are before it."""


def commands(code: str) -> Iterator[Command]:
    """The commands of a `console` block.

    >>> list(commands("$ echo one\\none\\n"))
    [Command(text='echo one', output='one\\n', line=0)]
    """
    text, output, begin = "", "", 0
    is_continued = False
    for line, content in enumerate(code.splitlines()):
        if is_continued:
            text += "\n" + content.removeprefix("> ")
        elif content.startswith("$ "):
            if text:
                yield Command(text, output, begin)
            text, output, begin = content.removeprefix("$ "), "", line
        elif not text:
            raise ValueError(f"a console block begins with '$ ', not with {content!r}")
        else:
            output += content + "\n"
            continue
        is_continued = text.endswith("\\")
    if text:
        yield Command(text, output, begin)


def is_run(command: str) -> bool:
    """Whether a command is one that can run in a test."""
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words.pop(0)
    return bool(words) and words[0] not in NEVER_RUN


def run(texts: list[str]) -> list[tuple[str, int]]:
    """Runs commands in one shell: for each one what it printed, and its exit status."""
    script = []
    for text in texts:
        # `$?` of the next command is that of this one.
        script += [text, f"__status=$?; printf '\\n%s %d\\n' {END} $__status; (exit $__status)"]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        env={**os.environ, **environment()},
        check=False,
    )
    found = re.findall(rf"(.*?)\n{END} (\d+)\n", done.stdout, re.DOTALL)
    if len(found) != len(texts):
        raise RuntimeError(f"the shell ended with status {done.returncode} after {len(found)} commands: {done.stdout}")
    return [(output, int(status)) for output, status in found]


def environment() -> dict[str, str]:
    """Programs of this environment come first, and nothing writes colours or wraps lines at a place of its own."""
    programs = Path.cwd() / ".programs"
    programs.mkdir(exist_ok=True)
    for name, arguments in (("python", ""), ("anyrecord", "-m anyrecord ")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        program.chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
