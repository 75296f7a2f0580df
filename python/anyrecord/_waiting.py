"""Runs coroutines of other libraries so that Ctrl-C is heard at once.

A blocking call of a library that is not written in Python hears Ctrl-C only when it returns. So its coroutines run on
an event loop in a thread of our own, which starts on first use. The calling thread waits in Python.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import wait
from typing import NoReturn, TypeVar

__all__ = ["result_of", "used_by_parent"]

T = TypeVar("T")

_SIGNAL_SECONDS = 0.1
"""How often a wait ends to hear Ctrl-C, where the system does not end it by itself (Windows)."""

_loop: asyncio.AbstractEventLoop | None = None
_lock = threading.Lock()
_is_ending = False
"""Whether the interpreter ends. Only daemon threads and functions of `atexit` still run then."""
_process: int | None = None
"""The first process that has used this. Its children inherit the number."""


def used_by_parent() -> bool:
    """Whether a process that this one was forked from has called `result_of`."""
    return _process not in (None, os.getpid())


def result_of(start: Callable[[], Awaitable[T]]) -> T:
    """Calls `start` on the event loop and waits for the result. An interrupted wait cancels the call."""

    async def run() -> T:
        return await start()

    with _lock:
        future = None if _is_ending else asyncio.run_coroutine_threadsafe(run(), _running_loop())
    if future is None:
        _end()
    try:
        while not wait([future], _SIGNAL_SECONDS).done:
            pass
    finally:
        future.cancel()  # does nothing if it is done
    if _is_ending:
        _end()
    return future.result()


def _end() -> NoReturn:
    """What a call does when the interpreter ends. A daemon thread ends with it, and must not report an error."""
    if threading.current_thread() is threading.main_thread():
        raise RuntimeError("the program is ending, so nothing can be read from a store any more")
    threading.Event().wait()
    raise SystemExit


def _running_loop() -> asyncio.AbstractEventLoop:
    """The event loop. The caller holds the lock."""
    global _loop, _process
    if _loop is None:
        _loop, _process = asyncio.new_event_loop(), _process or os.getpid()
        thread = threading.Thread(target=_loop.run_forever, name="anyrecord-store", daemon=True)
        thread.start()
        atexit.register(_stop, _loop, thread, os.getpid())
    return _loop


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, process: int) -> None:
    """Ends the thread before the interpreter ends: it must not run Python code after that."""
    global _is_ending
    if os.getpid() == process:
        with _lock:
            _is_ending = True
            # Tasks that are destroyed before they are done would complain.
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop)
        thread.join(1)


async def _cancel_others() -> None:
    loop, others = asyncio.get_running_loop(), asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)
    loop.call_soon(loop.stop)


def _forked() -> None:
    global _loop, _lock, _is_ending
    _is_ending = False
    _loop, _lock = None, threading.Lock()  # the thread does not exist in the child, and may have held the lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
