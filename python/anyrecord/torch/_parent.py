"""A worker process as its parent sees it: the connection to it, and the memory that both share."""

from __future__ import annotations

import mmap
import os
import pickle
import signal
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.reduction import send_handle
from typing import Any

from anyrecord._records import Records
from anyrecord.torch._filling import read_into
from anyrecord.torch._worker import Job, work

__all__ = ["Process"]

_FIRST_BYTES = 1 << 20
_SECONDS_TO_END = 5.0


class _SharedMemory:
    """Memory that another process can map: an anonymous file, of which nothing is left when both have closed it."""

    def __init__(self, size: int) -> None:
        self.descriptor: int | None = os.memfd_create("anyrecord-loader", os.MFD_CLOEXEC)
        try:
            os.truncate(self.descriptor, size)
            self.buffer = mmap.mmap(self.descriptor, size)
        except BaseException:
            self._close_descriptor()
            raise

    def send(self, connection: Any, pid: int) -> None:
        assert self.descriptor is not None
        send_handle(connection, self.descriptor, pid)
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def close(self) -> None:
        self._close_descriptor()
        with suppress(BufferError):  # the traceback of an error may still refer to a view; it is freed with that
            self.buffer.close()


class Process:
    """One worker process. One thread of the parent uses it; `interrupt` is for another thread."""

    def __init__(
        self,
        context: BaseContext,
        jobs: int,
        functions: Sequence[Callable[[Any], Any]],
        collate: Callable[[list[Any]], Any] | None,
    ) -> None:
        self.is_ending = self._is_waiting = False
        self._memory: list[_SharedMemory | None] = [None] * jobs
        self._slot = 0
        self._connection, theirs = context.Pipe()
        try:
            self._process: Any = context.Process(  # type: ignore[attr-defined]  # all contexts have it
                target=work, args=(theirs, functions, collate), name="anyrecord-loader", daemon=True
            )
            self._process.start()
        except BaseException:
            self._connection.close()
            raise
        finally:
            theirs.close()

    def read(self, records: Records, positions: Sequence[int]) -> array[int]:
        """Reads a batch into the memory of the next job. Returns where each record begins, and the end."""
        memory = self._memory[self._slot] or self._allocate(_FIRST_BYTES)
        return read_into(records, positions, memory, self._allocate)[1]

    def _allocate(self, size: int) -> _SharedMemory:
        old = self._memory[self._slot]
        if old is not None:
            old.close()
        new = self._memory[self._slot] = _SharedMemory(size)
        return new

    def send(self, offsets: array[int]) -> None:
        """Hands the batch that was read last to the process."""
        memory = self._memory[self._slot]
        assert memory is not None
        is_new = memory.descriptor is not None
        self._connection.send(Job(self._slot, len(memory.buffer) if is_new else None, offsets.tobytes()))
        if is_new:
            memory.send(self._connection, self._process.pid)
        self._slot = (self._slot + 1) % len(self._memory)

    def receive(self) -> bytes:
        """The answer to the oldest job. Raises EOFError if the process has ended."""
        self._is_waiting = True
        try:
            if self.is_ending or self._connection not in wait([self._connection, self._process.sentinel]):
                raise EOFError
            return self._connection.recv_bytes()
        finally:
            self._is_waiting = False

    def load(self, message: bytes) -> Any:
        """The value in an answer. The process must be alive, because it holds the shared memory of tensors."""
        try:
            return pickle.loads(message)
        except Exception as error:
            if self._process.is_alive():
                raise
            raise EOFError from error

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

    def close(self) -> None:
        """Waits for the end of the process and frees everything."""
        with suppress(OSError):
            self._connection.send(None)
        self._connection.close()
        self._process.join(_SECONDS_TO_END)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._process.close()
        for memory in self._memory:
            if memory is not None:
                memory.close()
