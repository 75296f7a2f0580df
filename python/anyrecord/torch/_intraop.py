"""PyTorch's operations in the threads of a loader.

By default, each operation on a large tensor wakes as many threads as there are cores, for each thread that calls it. If
every core has a thread of the loader already, they are in each other's way: a decoder that made floats of pictures took
1.8 times the processor time on two cores. So the threads of the loader share that number.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache

import torch

__all__ = ["IntraopThreads"]

_lock = threading.Lock()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have had it when this process was forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


@cache
def _uses_openmp() -> bool:
    return "parallel backend: OpenMP" in torch.__config__.parallel_info()


class IntraopThreads:
    """Divides the threads of PyTorch's operations among the threads that a loader starts."""

    def __init__(self) -> None:
        self._share: int | None = None
        self._entered = threading.Semaphore(0)

    def start(self, count: int, start: Callable[[], None]) -> None:
        """Calls `start`, which starts that many threads. Waits until each of them has called `enter`."""
        with _lock:
            before = torch.get_num_threads()
            # With PyTorch's own pool, all threads share the threads of that pool anyway.
            if before == 1 or not _uses_openmp():
                start()
                return
            self._share = max(1, before // count)
            try:
                start()
                for _ in range(count):
                    self._entered.acquire()
            finally:
                # The number of each thread is its own, but new threads begin with the one that was set last.
                torch.set_num_threads(before)

    def enter(self) -> None:
        """Each of the threads calls this first."""
        if self._share is not None:
            torch.get_num_threads()  # or the first operation would set it, to what new threads begin with
            torch.set_num_threads(self._share)
            self._entered.release()
