"""`FileListScanner`: reads records of many files ahead in a separate thread."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, Self, SupportsIndex

import anyrecord
from anyrecord.compat.recordio.filelist import FileList
from anyrecord.compat.recordio.source import bounds, read_error
from anyrecord.compat.runtime_errors import runtime_error

__all__ = ["FileListScanner"]

_MOST_RECORDS: Final = 1000
_MOST_BYTES: Final = 64 << 20


class FileListScanner:
    """An iterator over `length` records, beginning at `start`. A negative `length` means all records to the end.

    >>> from anyrecord.compat.recordio import FileList, FileListScanner, Writer
    >>> for path in ("a.recordio", "b.recordio"):
    ...     with Writer(path) as writer:
    ...         writer.write(path[:1].encode() + b"0")
    ...         writer.write(path[:1].encode() + b"1")
    >>> with FileListScanner(FileList(["a.recordio", "b.recordio"]), 1, 2) as scanner:
    ...     print(list(scanner), scanner.error())
    [b'a1', b'b0'] None

    Reading starts when you ask for the first record. It stays at most 1000 records or 64 MiB ahead. An error is raised
    after the records before it, and again at every further call. `error()` returns it, too. In a forked child, the
    iterator continues at the position of the parent, with a new thread.
    """

    def __init__(self, file_list: FileList, start: SupportsIndex = 0, length: SupportsIndex = -1) -> None:
        if not isinstance(file_list, FileList):
            raise TypeError(f"file_list must be a FileList, not {type(file_list).__name__}")
        records = file_list._opened()
        part = bounds(file_list.total_records(), start, length)
        self._is_closed = False
        self._error: Exception | None = None
        self._use(_Ahead((), 0) if records is None else _Ahead(records[part], 0))

    def _use(self, ahead: _Ahead) -> None:
        self._ahead = ahead
        self._finalizer = weakref.finalize(self, ahead.stop)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        self._refuse_closed()
        if self._error is not None:
            raise self._error
        if self._ahead.is_of_another_process:  # after a fork: its thread does not exist in this process
            self._finalizer.detach()
            self._use(_Ahead(self._ahead.records, self._ahead.taken))
        record = self._ahead.take()
        if record is not None:
            return record
        self._refuse_closed()  # another thread may have closed the scanner during the wait
        self._release()
        if (error := self._ahead.error) is None:
            raise StopIteration
        self._error = read_error(error)
        raise self._error from error

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise runtime_error("", anyrecord.ClosedError("this scanner is closed; make a new one"))

    def _release(self) -> None:
        """Ends the thread and releases the files now, even if the scanner or its error is still referenced."""
        self._finalizer()
        self._ahead.records = ()

    def chan(self) -> Self:
        """Returns the scanner itself, which is an iterator over the records."""
        return self

    def error(self) -> Exception | None:
        """Returns the error that stopped the scanner. None if there was none, also at the end."""
        return self._error

    def close(self) -> None:
        """Stops reading and closes the files. A second call does nothing."""
        self._is_closed = True
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Ahead:
    """The queue between the thread that reads records and the threads that take them.

    It has no reference to the scanner, so the scanner can be garbage-collected while the thread runs.
    """

    def __init__(self, records: Sequence[bytes], taken: int) -> None:
        self.records = records
        self.taken = taken
        self.error: Exception | None = None
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._alone: Iterator[bytes] | None = None
        self._ready: deque[bytes] = deque()
        self._ready_bytes = 0
        self._is_over = False

    @property
    def is_of_another_process(self) -> bool:
        return self._process != os.getpid()

    def take(self) -> bytes | None:
        """Returns the next record. None at the end, at an error, and after `stop`."""
        with self._changed:
            if self._thread is None and self._alone is None and not self._is_over:
                self._start()
            if self._alone is not None:
                return self._take_alone(self._alone)
            self._changed.wait_for(lambda: self._ready or self._is_over)
            if not self._ready:
                return None
            record = self._ready.popleft()
            self._ready_bytes -= len(record)
            self.taken += 1
            self._changed.notify_all()
            return record

    def _start(self) -> None:
        records = self.records[self.taken :]
        thread = threading.Thread(target=self._read, args=(records,), name="FileListScanner", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system cannot start a thread: read without read-ahead
            self._alone = iter(records)
        else:
            self._thread = thread

    def _take_alone(self, records: Iterator[bytes]) -> bytes | None:
        if self._is_over:
            return None
        try:
            record = next(records, None)
        except Exception as caught:
            self.error, record = caught.with_traceback(None), None
        self._is_over = record is None
        self.taken += record is not None
        return record

    def stop(self) -> None:
        """Ends the thread and drops the records that it has read."""
        if self.is_of_another_process:
            return
        with self._changed:
            self._is_over = True
            self._ready.clear()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _read(self, records: Sequence[bytes]) -> None:
        error = None
        try:
            for record in records:
                if not self._put(record):
                    return
        except Exception as caught:  # any error is passed to the thread that takes records
            error = caught.with_traceback(None)  # a traceback would keep the records alive
        with self._changed:
            self.error, self._is_over = error, True
            self._changed.notify_all()

    def _put(self, record: bytes) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._has_room(len(record)))
            if self._is_over:
                return False
            self._ready.append(record)
            self._ready_bytes += len(record)
            self._changed.notify_all()
            return True

    def _has_room(self, size: int) -> bool:
        if not self._ready:
            return True
        return len(self._ready) < _MOST_RECORDS and self._ready_bytes + size <= _MOST_BYTES
