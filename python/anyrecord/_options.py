"""The options that `open`, `info` and `verify` share."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, Literal, SupportsIndex, TypeAlias

from anyrecord import _core
from anyrecord._dataclasses import dataclass, field
from anyrecord._locations import StrPath, is_url, shown, text_of
from anyrecord._numbers import MOST_COUNT, MOST_THREADS, optional_number, whole_number
from anyrecord._store_files import StoreFiles
from anyrecord._stores import Root, Storage, resolve

__all__ = ["Checksums", "Limits", "OnError", "OpenOptions"]

Checksums: TypeAlias = bool | Literal["once"]
"""Whether hashes are checked: at every read, never, or at the first read of each chunk."""

OnError: TypeAlias = Literal["raise", "skip", "replace"] | Callable[[Any], bytes]
"""What happens to a record that cannot be read. The function gets a `RecordError`, or an `OSError` of the disk.

Both have the attributes `path`, `offset` and `record`, which type checkers do not know of an `OSError`.
"""

_LEAST_CACHE = (1 << 20) + 4096
"""The room for one block on a disk."""
_MOST_OPEN_FILES = 2**20
"""More files than any system lets one process open."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the memory, disk space and descriptors that reading may use, whatever sizes a file declares.

    Stored bytes need no limit: the size of the file limits them.
    """

    decoded_chunk_bytes: int = 4 << 30
    """The largest size of one chunk after decompression, in bytes."""
    decoded_bytes: int = 8 << 30
    """The largest number of decoded bytes that one call holds at once, over all chunks that it works on."""
    spool_bytes: int = 1 << 40
    """The largest size of the temporary files of one `Records`: decompressed streams, tables with `table="disk"`."""
    open_files: int = 256
    """The most descriptors that one `Records` keeps open, including temporary files. The least recently used close."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            most = _MOST_OPEN_FILES if name == "open_files" else MOST_COUNT
            # The class is frozen, so a plain assignment would raise.
            object.__setattr__(self, name, whole_number(name, getattr(self, name), 1, most))


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """The checked keywords of `open`. The core reads the attributes by name.

    None of them is a property: that would be Python code, which the core must not call while the interpreter exits.
    """

    format: str | None
    checksums: bool
    table: Literal["memory", "disk"]
    io: Literal["auto", "plain", "map", "direct"]
    decoded_chunk_bytes: int
    decoded_bytes: int
    spool_bytes: int
    open_files: int
    cache_bytes: int
    threads: int | None
    cache: tuple[str, int | None] | None = None
    """The folder of the local cache, and its limit."""
    on_error: OnError = "raise"
    max_errors: int | None = None
    reads_on: bool = False
    """Whether damaged records are not errors."""
    once: bool = False
    """Whether hashes are checked at the first read of a chunk only."""
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may hold secrets
    root: Root | None = field(default=None, repr=False)
    """Where paths begin."""
    store: StoreFiles | None = field(default=None, repr=False)
    """Reads all files, if they are not read by the core."""


def open_options(
    *,
    format: str | None = None,
    checksums: Checksums = True,
    table: Literal["memory", "disk"] = "memory",
    io: Literal["auto", "plain", "map", "direct"] = "auto",
    limits: Limits | None = None,
    cache_bytes: SupportsIndex = 64 << 20,
    threads: SupportsIndex | None = None,
    on_error: OnError = "raise",
    max_errors: SupportsIndex | None = None,
    storage: Storage | None = None,
    cache: StrPath | None = None,
    cache_folder_bytes: SupportsIndex | None = None,
) -> OpenOptions:
    """Checks the keywords and returns them as one object."""
    mark_worker_process()
    if table not in ("memory", "disk"):
        raise ValueError(f"table={table!r} is not valid: it must be 'memory' or 'disk'")
    if isinstance(checksums, str) and checksums != "once":
        raise ValueError(f"checksums={checksums!r} is not valid: it must be True, False or 'once'")
    if io not in ("auto", "plain", "map", "direct"):
        raise ValueError(f"io={io!r} is not valid: it must be 'auto', 'plain', 'map' or 'direct'")
    cache_bytes = whole_number("cache_bytes", cache_bytes, 0, MOST_COUNT)
    threads = optional_number("threads", threads, 0, MOST_THREADS)
    if format is not None and not isinstance(format, str):
        raise TypeError(f"format= takes the name of a format as a str, not {type(format).__name__}")
    limits = Limits() if limits is None else limits
    if not isinstance(limits, Limits):
        raise TypeError(f"limits= takes an anyrecord.Limits, not {type(limits).__name__}")
    if isinstance(on_error, str) and on_error not in ("raise", "skip", "replace"):
        raise ValueError(f"on_error={on_error!r} is not valid: it must be 'raise', 'skip', 'replace' or a function")
    if not isinstance(on_error, str) and not callable(on_error):
        raise TypeError(f"on_error= takes 'raise', 'skip', 'replace' or a function, not {type(on_error).__name__}")
    max_errors = optional_number("max_errors", max_errors, 0, MOST_COUNT)
    if max_errors is not None and on_error == "raise":
        raise ValueError("max_errors= needs on_error='skip', on_error='replace' or a function")
    stores = resolve(storage)
    if cache is not None and stores.store is not None:
        warnings.warn(
            f"cache= has no effect on files of this {type(storage).__name__}; pass URLs, with storage= as a dict",
            RuntimeWarning,
            stacklevel=4,
        )
    return OpenOptions(
        format=format,
        checksums=bool(checksums),
        once=checksums == "once",
        table=table,
        io=io,
        decoded_chunk_bytes=limits.decoded_chunk_bytes,
        decoded_bytes=limits.decoded_bytes,
        spool_bytes=limits.spool_bytes,
        open_files=limits.open_files,
        cache_bytes=cache_bytes,
        threads=threads,
        on_error=on_error,
        max_errors=max_errors,
        reads_on=on_error != "raise",
        cache=_cache(cache, cache_folder_bytes),
        storage=stores.options,
        root=stores.root,
        store=stores.store,
    )


def _cache(folder: StrPath | None, limit: SupportsIndex | None) -> tuple[str, int | None] | None:
    """The folder of the local cache as an absolute path, so that it means the same in another process."""
    limit = optional_number("cache_folder_bytes", limit, _LEAST_CACHE, MOST_COUNT)
    if folder is None:
        if limit is not None:
            raise ValueError("cache_folder_bytes= needs cache=; pass the folder of the cache, too")
        return None
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"cache= takes the path of a folder, not {type(folder).__name__}")
    text = text_of(folder)
    if not text or is_url(text):
        raise ValueError(f"cache={shown(text)!r} is not valid: it must be the path of a local folder")
    return os.path.abspath(text), limit


def mark_worker_process() -> None:
    """Tells the core if `multiprocessing` started this process. Other worker processes then use the other cores.

    The core recognises a forked child by itself. A spawned child has its process name before its parent is known.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is not None and (
        process.parent_process() is not None or process.current_process().name != "MainProcess"
    ):
        _core.set_worker()
