"""Ctrl-C at a moment that a server chooses."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest


def interrupted(is_time: Callable[[], object], act: Callable[[], object]) -> None:
    """Runs a call, and sends Ctrl-C when its request has come to a server that never answers."""
    done = threading.Event()

    def interrupt() -> None:
        while not is_time() and not done.wait(0.001):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            act()
    finally:
        done.set()
        thread.join()
