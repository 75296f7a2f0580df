"""Child processes with a time limit: what hangs is killed and fails, so that no test waits for ever."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

__all__ = ["LIMIT_SECONDS", "Forked", "forked", "python"]

T = TypeVar("T")

LIMIT_SECONDS = 60.0
"""Many times what the slowest child needs on a busy machine."""


class Forked(Generic[T]):
    """A forked child that calls `act` and sends home what it returns or raises; then it ends without any clean-up."""

    def __init__(self, act: Callable[[], T]) -> None:
        self._results, sink = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _answer(act, sink)
        os.close(sink)

    def result(self) -> T:
        """What `act` returned. Raises what it raised, and AssertionError if the child hangs or dies."""
        answer = b""
        while True:
            if not select.select([self._results], [], [], LIMIT_SECONDS)[0]:
                os.kill(self.pid, signal.SIGKILL)
                self._reap()
                raise AssertionError(f"the forked child hung for {LIMIT_SECONDS} seconds")
            piece = os.read(self._results, 1 << 16)
            if not piece:
                break
            answer += piece
        status = self._reap()
        assert answer, f"the forked child died with status {status}"
        value, error = pickle.loads(answer)
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]  # what `act` returned

    def _reap(self) -> int:
        os.close(self._results)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _answer(act: Callable[[], object], sink: int) -> NoReturn:
    value, error = None, None
    try:
        value = act()
    except BaseException as raised:
        error = raised
    answer = pickle.dumps((value, error))
    while answer:
        answer = answer[os.write(sink, answer) :]
    os._exit(0)


def forked(act: Callable[[], T]) -> T:
    """What `act` returns, or raises, in a forked child."""
    return Forked(act).result()


def python(script: str, *arguments: str) -> str:
    """What a script prints. Its failure is this one's, with all that it said."""
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert ran.returncode == 0, f"ended with {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout
