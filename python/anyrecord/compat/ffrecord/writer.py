"""`FileWriter`: writes samples to one file, which appears when the writer is closed."""

from __future__ import annotations

import atexit
import contextlib
import operator
import os
import shutil
import warnings
import weakref
from types import TracebackType
from typing import Any, NoReturn, Self, SupportsIndex

import anyrecord
from anyrecord.compat._types import StrPath, is_url, shown, split_query, text_of
from anyrecord.compat.runtime_errors import runtime_error

__all__ = ["FileWriter"]


_ENTRY_BYTES = 12  # bytes in the table for each sample


class FileWriter:
    """Writes exactly `n` samples to `fname`, which must end with `.ffr`.

    `close()` publishes the file and replaces an older one. Closing with fewer samples raises `RuntimeError` and leaves
    the writer open. A writer that is garbage-collected with all samples is closed. With fewer samples, it publishes
    nothing and issues a `RuntimeWarning`.

    >>> from anyrecord.compat.ffrecord import FileWriter
    >>> writer = FileWriter("doc.ffr", 2)
    >>> writer.write_one(b"one")
    >>> writer.close()
    Traceback (most recent call last):
    RuntimeError: 'count == n' failed. Number of samples mismatched! Wrote 1 samples but expected 2
    >>> writer.write_one(b"two")
    >>> writer.close()
    """

    def __init__(self, fname: StrPath, n: SupportsIndex) -> None:
        path = text_of(fname) if isinstance(fname, str | os.PathLike) else fname
        if not isinstance(path, str) or os.path.splitext(split_query(path)[0])[1] != ".ffr":
            named = shown(path) if isinstance(path, str) else path
            raise AssertionError(f"fname must be a path that ends with .ffr, not {named!r}")
        self._n = operator.index(n)
        if not 0 <= self._n <= (1 << 62) // _ENTRY_BYTES:
            raise ValueError(
                f"n={self._n} is not valid: the number of samples must be from 0 to {(1 << 62) // _ENTRY_BYTES}"
            )
        try:
            target = path if is_url(path) else self._local_path(path)
            self._writer = anyrecord.create(target, format="ffrecord", overwrite=True, num_records=self._n)
        except OSError as error:
            reason = error.strerror or str(error)
            raise runtime_error(f"'fd > 0' failed. Failed to open file {shown(path)}: {reason}", error) from error
        self._path, self._pid = shown(path), os.getpid()
        _ALIVE[id(self)] = self

    def _local_path(self, path: str) -> str:
        free = shutil.disk_usage(os.path.dirname(path) or os.curdir).free
        if self._n * _ENTRY_BYTES > free:
            raise MemoryError(f"the table of {self._n} samples alone needs {self._n * _ENTRY_BYTES} bytes of disk")
        # An absolute path, because the working directory can change before the writer is closed.
        return os.path.abspath(path)

    @property
    def n(self) -> int:
        """How many samples the file will have."""
        return self._n

    @property
    def count(self) -> int:
        """How many samples were written."""
        return self._writer.num_records

    def write_one(self, data: Any) -> None:
        """Writes a sample: `bytes`, or all bytes of any other C-contiguous buffer."""
        if self.count >= self._n:
            raise RuntimeError(f"'count < n' failed. Exceed total number of samples: {self._n}")
        try:
            self._writer.write(data)
        except (OSError, anyrecord.RecordError) as error:
            raise runtime_error(f"'res == len_i' failed. Sample {self.count}: not written", error) from error

    def close(self) -> None:
        """Publishes the file. A second call does nothing."""
        if self._writer.closed:
            return
        if self.count != self._n:
            raise RuntimeError(
                f"'count == n' failed. Number of samples mismatched! Wrote {self.count} samples but expected {self._n}"
            )
        try:
            self._writer.close()
        except (OSError, anyrecord.RecordError) as error:
            raise runtime_error("'res == len' failed. The file was not written", error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None or self.count == self._n:
            self.close()
        elif not self._writer.closed:
            self._writer.discard()

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle a FileWriter; create one in each process, each with its own file")

    _pid = 0

    def __del__(self) -> None:
        self._finish()

    def _finish(self) -> None:
        """Closes or discards a writer that is garbage-collected, or still open at the end of the process."""
        if self._pid != os.getpid() or self._writer.closed:
            return
        if self.count == self._n:
            self._writer.close()
            return
        self._writer.discard()
        warnings.warn(
            f"a FileWriter of {self._path} was dropped with {self.count} of {self._n} samples, and nothing was "
            "published; write all of them and call close()",
            RuntimeWarning,
            stacklevel=3,
        )


_ALIVE: weakref.WeakValueDictionary[int, FileWriter] = weakref.WeakValueDictionary()
"""Writers by their id."""


@atexit.register
def _finish_at_exit() -> None:
    """Finishes open writers at exit. It runs before `_writer` discards them, because it is registered later."""
    # The stack finishes all of them, even if one raises an exception, as a warning does under `-W error`.
    with contextlib.ExitStack() as stack:
        # `valuerefs` makes its list in one step. Iterating over the writers would fail if a daemon thread created one.
        for reference in _ALIVE.valuerefs():
            if (writer := reference()) is not None:
                stack.callback(writer._finish)
