"""Ctrl-C at a moment that a server chooses."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress


def interrupted(is_time: Callable[[], object], act: Callable[[], object]) -> None:
    """Runs a call, and sends Ctrl-C when its request has come to a server that never answers."""
    done = threading.Event()

    def interrupt() -> None:
        while not is_time() and not done.wait(0.001):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    heard = False
    try:
        # The signal of a call that did not hear it comes later, here.
        with suppress(OSError):
            act()
    except KeyboardInterrupt:
        heard = True
    finally:
        done.set()
        thread.join()
    assert heard
