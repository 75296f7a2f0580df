"""Threads that make batches ahead of the consumer. The consumer gets the batches in order.

Only the consumer's thread decides what is made: it orders a batch whenever it has taken one. So the number of batches
in memory is bounded without a lock, and a thread that makes batches waits in one place only, the queue of tasks.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import thread_time
from typing import Any
from weakref import WeakSet

from anyrecord.torch._nested import bytes_of

__all__ = ["END", "NOTHING", "Maker", "Ordered", "Pipeline", "Tasks"]

END = object()
"""Delivered after the last batch."""
NOTHING = object()
"""A batch of which no record is left, because all are damaged."""

_MOST_BYTES = 256 << 20
"""The number of bytes that batches may hold ahead of the consumer. Two batches are always made, whatever their size."""
_LEAST_SECONDS = 1e-3
"""A smaller piece of a batch costs more to hand over than it saves."""
_BATCHES_PER_MEASUREMENT = 16


class Ordered:
    """A batch that was ordered, and then the batch itself or the error that making it raised."""

    __slots__ = ("_left", "_lock", "_pieces", "_ready", "error", "is_done", "number", "seconds", "size", "value")

    def __init__(self, number: int, pieces: int) -> None:
        self.number = number
        self.value: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        self.size = 0
        self.seconds = 0.0
        self._pieces: list[Any] = [None] * pieces
        self._left = pieces
        self._ready = threading.Lock()
        self._ready.acquire()

    def make(self, maker: Maker, piece: int, lock: threading.Lock) -> None:
        """Makes one piece, and the batch if it is the last one."""
        of = len(self._pieces)
        begun = thread_time() if maker.can_split else 0.0
        self._pieces[piece] = _attempt(maker, self.number, piece, of)
        with lock:
            self._left -= 1
            is_last = self._left == 0
            self.seconds += thread_time() - begun if maker.can_split else 0.0
        if is_last:
            self._finish(maker)

    def _finish(self, maker: Maker) -> None:
        pieces, self._pieces = self._pieces, []
        # The first in the order of the records, whichever thread was first.
        failed = next((piece for piece in pieces if type(piece) is _Failed), None)
        if failed is not None:
            self.fail(failed.error)
            return
        try:
            value = maker.finish(self.number, pieces)
            self.measure(value)
        except BaseException as error:
            self.fail(error)
        else:
            self.deliver(value)

    def measure(self, value: Any) -> None:
        """Measures the size of some of the batches. All have about the same."""
        if self.number % _BATCHES_PER_MEASUREMENT == 0:
            self.size = max(1, bytes_of(value))

    def deliver(self, value: Any) -> None:
        self.value = value
        self.is_done = True
        self._ready.release()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.is_done = True
        self._ready.release()

    def take_error(self) -> BaseException:
        """Returns the error. Its traceback refers to this batch, so the batch must not keep it."""
        error, self.error = self.error, None
        assert error is not None
        return error

    def wait(self) -> None:
        # The flag comes first: if Ctrl-C interrupts right after the lock was taken, the next call must not wait for it.
        if not self.is_done:
            self._ready.acquire()

    def cancel(self) -> None:
        """Wakes a consumer that waits for a batch that nobody will make."""
        if not self.is_done and self._ready.locked():
            self._ready.release()


class _Failed:
    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _attempt(maker: Maker, number: int, piece: int, of: int) -> Any:
    """A piece of a batch, or the error. The frames in its traceback must not have the error, which would be a cycle."""
    try:
        return maker.make(number, piece, of)
    except BaseException as error:
        return _Failed(error)


class Tasks:
    """The queue from which threads take what to do next."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Ordered, int] | None] = SimpleQueue()
        self.put = self._queue.put
        self.take = self._queue.get

    def end(self, threads: int) -> None:
        """Takes back what nobody has begun, and ends that many threads."""
        try:
            while True:
                self._queue.get_nowait()
        except Empty:
            for _ in range(threads):
                self._queue.put(None)


class Maker:
    """Makes batches by number. Several threads call it at once."""

    can_split = False
    """Whether several threads can make one batch."""

    def run(self, tasks: Tasks, lock: threading.Lock, index: int) -> None:
        """What one of the threads does: it works on tasks until there is None."""
        while (task := tasks.take()) is not None:
            ordered, piece = task
            ordered.make(self, piece, lock)
            del ordered, task  # the consumer alone keeps the batch alive

    def make(self, number: int, piece: int, of: int) -> Any:
        """Makes one of the pieces of a batch, or the batch if there is one piece."""
        raise NotImplementedError

    def finish(self, number: int, pieces: list[Any]) -> Any:
        """Makes the batch from its pieces. The thread that has made the last piece calls it."""
        return pieces[0]

    def interrupt(self) -> None:
        """Wakes threads that wait for anything but tasks, because the pipeline ends."""

    def close(self) -> None:
        """Frees everything, after the threads have ended."""


class Pipeline:
    """Makes `count` batches, in threads. With 0 threads, the consumer makes them itself."""

    def __init__(
        self,
        maker: Maker,
        count: int,
        threads: int,
        prefetch: int | None = None,
        before_order: Callable[[int], None] | None = None,
        deliver: Callable[[Any], Any] | None = None,
    ) -> None:
        self._maker, self._count, self._most_threads = maker, count, threads
        self._before_order, self._deliver = before_order, deliver
        self._prefetch = prefetch
        self._ordered: deque[Ordered] = deque()
        self._next = 0
        self._pieces = max(1, threads) if maker.can_split else 1
        self._largest = 0
        self.is_closed = False
        self._pid = os.getpid()
        self._tasks = Tasks()
        self._piece_lock, self._taking, self._closing = threading.Lock(), threading.Lock(), threading.Lock()
        self._threads: list[threading.Thread] = []
        self._window = self._choose_window()
        if threads:
            _live.add(self)
            try:
                self._order()
                self._start(min(threads, self._next * self._pieces))
            except BaseException:
                self.close()
                raise

    def _start(self, threads: int) -> None:
        for i in range(threads):
            arguments = (self._tasks, self._piece_lock, i)
            # A daemon, because Python waits for other threads before it calls `_close_all` at exit.
            thread = threading.Thread(target=self._maker.run, args=arguments, name=f"anyrecord-loader-{i}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _choose_window(self) -> int:
        """How many batches to make ahead of the consumer."""
        if self._prefetch is not None:
            return self._prefetch
        if not self._largest:  # not known yet: as many as keep all threads busy
            return max(2, -(-self._most_threads // self._pieces))
        return max(2, min(-(-2 * self._most_threads // self._pieces), _MOST_BYTES // self._largest))

    def _order(self) -> None:
        while self._next < self._count and len(self._ordered) < self._window:
            if self._before_order is not None:
                self._before_order(self._next)
            ordered = Ordered(self._next, self._pieces)
            self._next += 1
            self._ordered.append(ordered)
            for piece in range(self._pieces):
                self._tasks.put((ordered, piece))

    def take(self) -> Any:
        """Returns the next batch, or `END`. Raises the error of making it."""
        if self._pid != os.getpid():
            raise RuntimeError("this iterator belongs to the parent process; call iter(loader) in this process")
        with self._taking:
            if self.is_closed:
                return END
            if not self._most_threads:
                return self._make_here()
            if not self._ordered:
                return END
            ordered = self._ordered[0]
            ordered.wait()
            if self.is_closed or not ordered.is_done:
                return END
            self._ordered.popleft()
            if ordered.error is not None:
                raise ordered.take_error()
            if ordered.size > self._largest or ordered.seconds:
                self._adapt(ordered)
            self._order()
            value = ordered.value
            return value if self._deliver is None or value is NOTHING else self._deliver(value)

    def _adapt(self, ordered: Ordered) -> None:
        self._largest = max(self._largest, ordered.size)
        if self._maker.can_split:
            self._pieces = max(1, min(self._most_threads, int(ordered.seconds / _LEAST_SECONDS)))
        self._window = self._choose_window()

    def _make_here(self) -> Any:
        if self._next == self._count:
            return END
        value = self._maker.finish(self._next, [self._maker.make(self._next, 0, 1)])
        self._next += 1
        return value if self._deliver is None or value is NOTHING else self._deliver(value)

    def close(self) -> None:
        """Ends all threads. They finish what they have begun."""
        if self._pid != os.getpid():  # the threads are those of the parent
            return
        self.is_closed = True
        if threading.current_thread() in self._threads:
            # The garbage collector may call this in one of the threads, which cannot wait for itself.
            threading.Thread(target=self.close, name="anyrecord-loader-close", daemon=True).start()
            return
        with self._closing:
            self._tasks.end(len(self._threads))
            self._maker.interrupt()
            for thread in self._threads:
                thread.join()
            for ordered in list(self._ordered):
                ordered.cancel()
            self._maker.close()
            _live.discard(self)


_live: WeakSet[Pipeline] = WeakSet()


@atexit.register
def _close_all() -> None:
    for pipeline in list(_live):
        pipeline.close()
