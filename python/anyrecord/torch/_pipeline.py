"""Threads that make batches ahead of the consumer. The consumer gets the batches in order.

Only the consumer's thread decides what is made: it orders a batch whenever it has taken one. So the number of batches
in memory is bounded without a lock, and a thread that makes batches waits in one place only, the queue of tasks.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from queue import Empty, SimpleQueue
from time import thread_time
from typing import Any
from weakref import WeakSet

from anyrecord.torch._nested import bytes_of

__all__ = [
    "END",
    "NOTHING",
    "TOGETHER_BYTES",
    "Failed",
    "LoaderThread",
    "Maker",
    "Ordered",
    "Pipeline",
    "Tasks",
    "attempt",
]

END = object()
"""Delivered after the last batch."""
NOTHING = object()
"""A batch of which no record is left, because all are damaged."""

_MOST_BYTES = 256 << 20
"""The number of bytes that batches may hold ahead of the consumer. Two batches are always made, whatever their size."""
TOGETHER_BYTES = 32 << 20
"""Small batches are made together, up to so many bytes."""
_LEAST_SECONDS = 1e-3
"""A smaller piece of a batch costs more to hand over than it saves."""
_BATCHES_PER_MEASUREMENT = 16


class Ordered:
    """A batch that was ordered, and then the batch itself or the error that making it raised. Or several batches, which
    are made together."""

    __slots__ = ("_left", "_pieces", "_ready", "count", "error", "is_done", "number", "seconds", "size", "value")

    def __init__(self, number: int, count: int, pieces: int) -> None:
        self.number, self.count = number, count
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
        self._pieces[piece] = attempt(maker.make_group, self.number, self.count, piece, of)
        with lock:
            self._left -= 1
            is_last = self._left == 0
            self.seconds += thread_time() - begun if maker.can_split else 0.0
        if is_last:
            self._finish(maker)

    def _finish(self, maker: Maker) -> None:
        pieces, self._pieces = self._pieces, []
        # The first in the order of the records, whichever thread was first.
        failed = next((piece for piece in pieces if type(piece) is Failed), None)
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
        if self.count > 1 or self.number % _BATCHES_PER_MEASUREMENT == 0:
            self.size = max(1, bytes_of(value) // self.count)

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


class Failed:
    """Stands for a batch that could not be made."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


def attempt(make: Callable[..., Any], *arguments: int) -> Any:
    """What the function makes, or the error. The frames in its traceback must not have the error, which would be a
    cycle."""
    try:
        return make(*arguments)
    except BaseException as error:
        return Failed(error)


class LoaderThread(threading.Thread):
    """A thread that works for a loader."""

    def __init__(self, target: Callable[..., None], name: str, arguments: tuple[Any, ...] = ()) -> None:
        # A daemon, because Python waits for other threads before it calls `_close_all` at exit.
        super().__init__(target=target, args=arguments, name=f"anyrecord-loader-{name}", daemon=True)


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
    most_together = 1
    """How many batches can be made together."""

    def start(self, count: int, start: Callable[[], None]) -> None:
        """Calls `start`, which starts that many threads."""
        start()

    def run(self, tasks: Tasks, lock: threading.Lock, index: int) -> None:
        """What one of the threads does: it works on tasks until there is None."""
        while (task := tasks.take()) is not None:
            ordered, piece = task
            ordered.make(self, piece, lock)
            del ordered, task  # the consumer alone keeps the batch alive

    def make(self, number: int, piece: int, of: int) -> Any:
        """Makes one of the pieces of a batch, or the batch if there is one piece."""
        raise NotImplementedError

    def make_group(self, number: int, count: int, piece: int, of: int) -> Any:
        """Makes `count` batches. There is one, unless the maker says that it can make more together."""
        return self.make(number, piece, of)

    def split(self, group: Any) -> Iterable[Any]:
        """The batches that were made together. One that could not be made is `Failed`."""
        return (group,)

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
        self._received: deque[Any] = deque()
        self._next, self._together = 0, 1
        self._pieces = max(1, threads) if maker.can_split else 1
        self._largest = 0
        self.is_closed = False
        self._pid = os.getpid()
        self._tasks = Tasks()
        self._piece_lock, self._taking = threading.Lock(), threading.Lock()
        self._closing, self._is_closing = threading.RLock(), False
        self._threads: list[threading.Thread] = []
        self._window = self._choose_window()
        if threads:
            _live.add(self)
            try:
                self._order()
                count = min(threads, len(self._ordered) * self._pieces)
                if count:  # not if no batch is left
                    maker.start(count, partial(self._start, count))
            except BaseException:
                self.close()
                raise

    def _start(self, threads: int) -> None:
        for i in range(threads):
            thread = LoaderThread(self._maker.run, str(i), (self._tasks, self._piece_lock, i))
            thread.start()
            self._threads.append(thread)

    def _choose_window(self) -> int:
        """How many batches to make ahead of the consumer."""
        if self._prefetch is not None:
            # Those that were received together count, too.
            return self._prefetch if self._together == 1 else self._prefetch // self._together - 1
        if not self._largest:  # not known yet: as many as keep all threads busy
            return max(2, -(-self._most_threads // self._pieces))
        return max(2, min(-(-2 * self._most_threads // self._pieces), _MOST_BYTES // (self._largest * self._together)))

    def _order(self) -> None:
        while self._next < self._count and len(self._ordered) < self._window:
            if self._before_order is not None:
                self._before_order(self._next)
            ordered = Ordered(self._next, min(self._together, self._count - self._next), self._pieces)
            self._next += ordered.count
            self._ordered.append(ordered)
            for piece in range(self._pieces):
                self._tasks.put((ordered, piece))

    def take(self) -> Any:
        """Returns the next batch, or `END`. Raises the error of making it."""
        if self._pid != os.getpid():
            raise RuntimeError("this iterator belongs to the parent process; call iter(loader) in this process")
        try:
            with self._taking:
                if self.is_closed:
                    return END
                if not self._most_threads:
                    return self._make_here()
                if not self._received and not self._receive():
                    return END
                return self._delivered(self._received.popleft())
        finally:
            if self.is_closed:  # since this thread has begun to take a batch
                self._drop()

    def _receive(self) -> bool:
        """Waits for the next batches. False if there are none."""
        if not self._ordered:
            return False
        ordered = self._ordered[0]
        ordered.wait()
        if self.is_closed or not ordered.is_done:
            return False
        self._ordered.popleft()
        if ordered.error is not None:
            raise ordered.take_error()
        if ordered.size or ordered.seconds:
            self._adapt(ordered)
        self._order()
        self._received.extend(self._maker.split(ordered.value))
        return True

    def _delivered(self, value: Any) -> Any:
        if type(value) is Failed:
            raise value.error
        return value if self._deliver is None or value is NOTHING else self._deliver(value)

    def _adapt(self, ordered: Ordered) -> None:
        self._largest = max(self._largest, ordered.size)
        if self._maker.can_split:
            self._pieces = max(1, min(self._most_threads, int(ordered.seconds / _LEAST_SECONDS)))
        if ordered.count == self._together:
            self._together = self._choose_together()
        self._window = self._choose_window()

    def _choose_together(self) -> int:
        """How many batches to make together. Their number grows, because the first batch must come soon."""
        ahead = self._maker.most_together if self._prefetch is None else self._prefetch // 4
        fitting = TOGETHER_BYTES // max(1, self._largest)
        return max(1, min(2 * self._together, fitting, ahead, self._maker.most_together))

    def _make_here(self) -> Any:
        if self._next == self._count:
            return END
        if self._before_order is not None:
            self._before_order(self._next)
        value = self._maker.finish(self._next, [self._maker.make(self._next, 0, 1)])
        self._next += 1
        return self._delivered(value)

    def close(self) -> None:
        """Ends all threads. They finish what they have begun."""
        if self._pid != os.getpid():  # the threads are those of the parent
            return
        self.is_closed = True
        if threading.current_thread() in self._threads:  # which cannot wait for itself
            self._close_elsewhere()
            return
        with self._closing:
            if self._is_closing:  # the garbage collector may call this while it runs
                return
            self._is_closing = True
            try:
                self._end()
            finally:
                self._is_closing = False

    def abandon(self) -> None:
        """Ends all threads, when nothing refers to the iterator anymore. This may run in any thread."""
        if self._pid == os.getpid() and isinstance(threading.current_thread(), LoaderThread):
            # The garbage collector runs here. The threads of this pipeline may wait for what only this thread will do.
            self.is_closed = True
            self._close_elsewhere()
        else:
            self.close()

    def _close_elsewhere(self) -> None:
        threading.Thread(target=self.close, name="anyrecord-loader-close", daemon=True).start()

    def _drop(self) -> None:
        """Forgets the batches that nobody will take. A thread that is taking one does so when it has it."""
        if self._taking.acquire(blocking=False):
            self._ordered.clear()
            self._received.clear()
            self._taking.release()

    def _end(self) -> None:
        self._tasks.end(len(self._threads))
        self._maker.interrupt()
        for thread in self._threads:
            thread.join()
        for ordered in list(self._ordered):
            ordered.cancel()
        self._drop()
        self._maker.close()
        _live.discard(self)


_live: WeakSet[Pipeline] = WeakSet()


@atexit.register
def _close_all() -> None:
    errors = [failed.error for pipeline in list(_live) if type(failed := attempt(pipeline.close)) is Failed]
    if errors:  # the others are closed nevertheless
        raise errors[0]
