"""Waves: how many times a client had to wait for answers before it could send the next requests."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

MOMENT_SECONDS = 0.02
MOST_MOMENTS = 150
"""A client that never rests does not hold the gate closed for ever."""
BUSY_SHARE = 0.1
"""A client that waits may wake up now and then, for instance to look for Ctrl-C."""
TURNS = 10
"""Turns of the event loop between the arrival of a first byte and the moment when a request counts as arrived."""


class Waves:
    """The wave of a request is 1 plus the largest wave of those that were answered before it arrived."""

    def __init__(self) -> None:
        self._answered = 0

    def arrived(self) -> int:
        return self._answered + 1

    def answered(self, wave: int) -> None:
        self._answered = max(self._answered, wave)


class Gate:
    """Holds all answers until no further request comes, so that requests that are in flight together are one wave.

    A client on a busy machine may need long to send its requests. Therefore quiet alone does not open the gate:
    all other threads of this process have to be asleep as well. (Without /proc, and for clients in other processes,
    it is quiet alone.)
    """

    def __init__(self) -> None:
        self._arrivals = 0
        self._held: list[asyncio.Future[None]] = []
        self._opener: asyncio.Task[None] | None = None

    def arrived(self) -> None:
        self._arrivals += 1

    async def wait(self) -> None:
        """Returns when the gate opens."""
        held = asyncio.get_running_loop().create_future()
        self._held.append(held)
        if self._opener is None or self._opener.done():
            self._opener = asyncio.create_task(self._open())
        await held

    async def _open(self) -> None:
        quiet = 0
        while quiet < MOST_MOMENTS:
            arrivals, before = self._arrivals, _run_seconds()
            await asyncio.sleep(MOMENT_SECONDS)
            asleep = _run_seconds() - before <= BUSY_SHARE * MOMENT_SECONDS and _all_asleep()
            for _ in range(TURNS):
                await asyncio.sleep(0)
            quiet = quiet + 1 if self._arrivals == arrivals else 0
            if quiet and asleep:
                break
        held, self._held = self._held, []
        for waiting in held:
            if not waiting.done():
                waiting.set_result(None)


_TASKS = Path("/proc/self/task")


def _other_threads() -> list[Path]:
    own = str(threading.get_native_id())
    return [_TASKS / name for name in os.listdir(_TASKS) if name != own] if _TASKS.exists() else []


def _run_seconds() -> float:
    """How long the other threads have run altogether."""
    return sum(int(_read(thread / "schedstat").split()[0] or 0) for thread in _other_threads()) / 1e9


def _all_asleep() -> bool:
    return all(_read(thread / "stat").rpartition(")")[2].split()[0] == "S" for thread in _other_threads())


def _read(path: Path) -> str:
    """A thread may end while we look: then it has not run, and sleeps."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "0 (ended) S"
