"""Runs command lines: in this process, in a process of their own, and on a terminal."""

from __future__ import annotations

import io
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from anyrecord.cli import main
from children import LIMIT_SECONDS

__all__ = ["COMMAND", "Ran", "environment", "on_terminal", "run", "run_apart"]

COMMAND = [sys.executable, "-W", "error", "-m", "anyrecord"]


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    data: bytes
    """What it wrote to standard output."""
    err: str

    @property
    def out(self) -> str:
        return self.data.decode()

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        """The only line of output."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def jsons(self) -> list[Any]:
        """All lines of output."""
        return [json.loads(line) for line in self.lines]

    @property
    def error(self) -> Any:
        """The error of a command with `--json`: the last line of standard error."""
        return json.loads(self.err.splitlines()[-1])["error"]


def run(*args: str | os.PathLike[str], stdin: bytes | None = None) -> Ran:
    """Runs a command in this process, without a terminal. That is fast."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "strict") for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(b"" if stdin is None else stdin))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(sys, "stdin", given)
        code = main([os.fspath(arg) for arg in args])
    out.flush()
    err.flush()
    return Ran(code, out.buffer.getvalue(), err.buffer.getvalue().decode())


def environment(**changes: str) -> dict[str, str]:
    """The environment without what would change the output, and with changes."""
    dropped = ("NO_COLOR", "FORCE_COLOR", "ANYRECORD_DEBUG", "COLUMNS", "LINES", "TERM")
    return {name: value for name, value in os.environ.items() if name not in dropped} | changes


def run_apart(*args: str | os.PathLike[str], stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Ran:
    """Runs a command in a process of its own, in pipes."""
    command = [*COMMAND, *(os.fspath(arg) for arg in args)]
    ran = subprocess.run(
        command, input=stdin, capture_output=True, timeout=LIMIT_SECONDS, check=False, env=env or environment()
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr.decode())


def on_terminal(
    *args: str | os.PathLike[str], columns: int = 80, stdout: Any = None, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Runs a command on a terminal. Returns the exit code and all that came to the terminal, with escape sequences.

    Standard output goes to the terminal, too, unless `stdout` says where else.
    """
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    given = env or environment(TERM="xterm-256color")
    command = [*COMMAND, *(os.fspath(arg) for arg in args)]
    child = subprocess.Popen(
        command, stdin=theirs, stdout=theirs if stdout is None else stdout, stderr=theirs, env=given
    )
    os.close(theirs)
    shown = b""
    try:
        while True:
            if not select.select([ours], [], [], LIMIT_SECONDS)[0]:
                raise AssertionError(f"nothing came for {LIMIT_SECONDS} seconds after {shown!r}")
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # how Linux tells that the other end is closed
                break
            if not piece:
                break
            shown += piece
        return child.wait(LIMIT_SECONDS), shown.decode().replace("\r\n", "\n")
    finally:
        child.kill()
        child.wait()
        os.close(ours)
