"""The progress of a queue on stderr: one line, printed over itself on a terminal, else as a new line each time."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue

from anyrecord._shard_queue import ShardQueue

__all__ = ["Progress"]

SECONDS = 2.0
_PATIENCE_SECONDS = 2.0


class Progress:
    """Prints the status every two seconds, in a thread: a shard, or waiting for others, may take long."""

    def __init__(self, queue: ShardQueue) -> None:
        self._queue = queue
        self._stops: SimpleQueue[bool] = SimpleQueue()  # `stop` may run anywhere, see `KeptLeases.stop`
        self._thread = threading.Thread(target=self._run, name="anyrecord-progress", daemon=True)
        self._process = os.getpid()
        self._show()
        self._thread.start()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            with suppress(Empty):
                is_last = self._stops.get(timeout=SECONDS)
            self._show(is_last)

    def _show(self, is_last: bool = False) -> None:
        with suppress(Exception):  # a store that is gone is for the loop to notice, and nobody needs a closed stderr
            _print(self._queue.status().line(), is_last)

    def stop(self) -> None:
        """Prints the last line."""
        if self._process == os.getpid():
            self._stops.put(True)
            if threading.current_thread() is not self._thread:
                self._thread.join(_PATIENCE_SECONDS)


def _print(line: str, is_last: bool) -> None:
    if not sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)
        return
    with suppress(OSError, ValueError):  # a longer line would not be printed over itself
        line = line[: max(20, os.get_terminal_size(sys.stderr.fileno()).columns - 1)]
    print(f"\r\x1b[K{line}", end="\n" if is_last else "", file=sys.stderr, flush=True)
