"""A worker process as its parent sees it: the connection to it, and the memory that both share."""

from __future__ import annotations

import signal
from array import array
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.util import register_after_fork
from typing import Any

from anyrecord._records import Records
from anyrecord.torch._filling import read_into
from anyrecord.torch._shared import Received, SharedMemory, can_share
from anyrecord.torch._worker import Job, Work, work

__all__ = ["Process"]

_FIRST_BYTES = 1 << 20
_SECONDS_TO_END = 5.0


class _Slot:
    """The memory of one job: room for records, and after them for where they begin."""

    def __init__(self, size: int, records: int) -> None:
        self.shared = SharedMemory(size + 8 * (records + 2))
        self.buffer = self.shared.memory[:size]

    def write(self, offsets: array[int]) -> int:
        """Writes where the records begin behind them. Returns the place of these numbers."""
        at = -(-offsets[-1] // 8) * 8
        self.shared.memory[at : at + 8 * len(offsets)] = memoryview(offsets).cast("B")
        return at

    def close(self) -> None:
        with suppress(BufferError):  # the traceback of an error may still refer to a view
            self.buffer.release()
        self.shared.close()


class Process:
    """One worker process. One thread of the parent uses it; `interrupt` is for another thread."""

    def __init__(self, context: BaseContext, todo: Work, jobs: int, most_records: int) -> None:
        self.is_ending = self._is_waiting = False
        self._slots: list[_Slot | None] = [None] * jobs
        self._next, self._most_records = 0, most_records
        self._connection, theirs = context.Pipe()
        # Forked processes inherit this end, too. With it, they would not learn that the parent was killed.
        register_after_fork(self._connection, type(self._connection).close)
        try:
            self._process: Any = context.Process(  # type: ignore[attr-defined]  # all contexts have it
                target=work, args=(theirs, todo), name="anyrecord-loader", daemon=True
            )
            self._process.start()
        except BaseException:
            self._connection.close()
            raise
        finally:
            theirs.close()

    def read(self, records: Records, positions: Sequence[int]) -> array[int]:
        """Reads a batch into the memory of the next job. Returns where each record begins, and the end."""
        slot = self._slots[self._next] or self._allocate(_FIRST_BYTES)
        return read_into(records, positions, slot, self._allocate)[1]

    def _allocate(self, size: int) -> _Slot:
        old = self._slots[self._next]
        if old is not None:
            old.close()
        new = self._slots[self._next] = _Slot(size, self._most_records)
        return new

    def send(self, offsets: array[int]) -> None:
        """Hands the batch that was read last to the process."""
        slot = self._slots[self._next]
        assert slot is not None
        at, count, shared = slot.write(offsets), len(offsets) - 1, slot.shared
        if not can_share():
            self._connection.send(Job(None, None, at, count))
            self._connection.send_bytes(shared.memory[: at + 8 * len(offsets)])
        elif shared.is_sent:
            self._connection.send(Job(self._next, None, at, count))
        else:
            self._connection.send(Job(self._next, len(shared.memory), at, count))
            shared.send(self._connection, self._process.pid)
        self._next = (self._next + 1) % len(self._slots)

    def receive(self) -> Received:
        """The answer to the oldest job. Raises EOFError or ConnectionError if the process has ended."""
        self._is_waiting = True
        try:
            if self.is_ending or self._connection not in wait([self._connection, self._process.sentinel]):
                raise EOFError
            return Received(self._connection)
        finally:
            self._is_waiting = False

    def death(self) -> RuntimeError:
        """The error that says how the process ended."""
        self._process.join(_SECONDS_TO_END)
        code = self._process.exitcode
        how = "closed its connection" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            with suppress(ValueError):
                how = f"was killed by {signal.Signals(-code).name}"
        return RuntimeError(
            f"worker process {self._process.pid} of the loader {how}; its messages on stderr may say why "
            "(a script that uses processes= needs `if __name__ == '__main__':`)"
        )

    def interrupt(self) -> None:
        """Ends the process if the thread waits for it. The thread reads the two flags in the other order."""
        self.is_ending = True
        if self._is_waiting:
            self._process.terminate()

    def end(self) -> None:
        """Tells the process to end."""
        with suppress(OSError):  # it has ended, or was told before
            self._connection.send(None)
        self._connection.close()

    def close(self) -> None:
        """Waits for the end of the process, after `end`, and frees everything."""
        self._process.join(_SECONDS_TO_END)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._process.close()
        for slot in self._slots:
            if slot is not None:
                slot.close()
