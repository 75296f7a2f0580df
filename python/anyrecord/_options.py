"""How to open: the options that `open`, `info` and `verify` share."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal, SupportsIndex

from anyrecord import _core
from anyrecord._numbers import MOST_COUNT, MOST_THREADS, optional_number, whole_number

__all__ = ["Limits", "OpenOptions"]

_MOST_OPEN_FILES = 2**20
"""No system opens more files for one process than that."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on what a file may claim. Stored bytes need none: the file bounds them."""

    decoded_chunk_bytes: int = 4 << 30
    """Bytes that one chunk may decompress to."""
    decoded_bytes: int = 8 << 30
    """Decoded bytes that one call may hold at once, of all the chunks it works on."""
    spool_bytes: int = 1 << 40
    """Bytes that the temporary files of one `Records` may take: unpacked streams, and tables with `table="disk"`."""
    open_files: int = 256
    """Descriptors that one `Records` keeps open, temporary files included; the least recently used are closed."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            most = _MOST_OPEN_FILES if name == "open_files" else MOST_COUNT
            # The class is frozen for its users; what is kept is the plain number.
            object.__setattr__(self, name, whole_number(name, getattr(self, name), 1, most))


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """The keywords of `open`, checked; the attributes are what the core reads."""

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


def open_options(
    *,
    format: str | None = None,
    checksums: bool = True,
    table: Literal["memory", "disk"] = "memory",
    io: Literal["auto", "plain", "map", "direct"] = "auto",
    limits: Limits | None = None,
    cache_bytes: SupportsIndex = 64 << 20,
    threads: SupportsIndex | None = None,
) -> OpenOptions:
    """Checks the keywords and gathers them."""
    tell_if_worker()
    if table not in ("memory", "disk"):
        raise ValueError(f"table={table!r} is not valid: it must be 'memory' or 'disk'")
    if io not in ("auto", "plain", "map", "direct"):
        raise ValueError(f"io={io!r} is not valid: it must be 'auto', 'plain', 'map' or 'direct'")
    cache_bytes = whole_number("cache_bytes", cache_bytes, 0, MOST_COUNT)
    threads = optional_number("threads", threads, 0, MOST_THREADS)
    if format is not None and not isinstance(format, str):
        raise TypeError(f"format= takes the name of a format, not {type(format).__name__}")
    limits = Limits() if limits is None else limits
    if not isinstance(limits, Limits):
        raise TypeError(f"limits= takes an anyrecord.Limits, not {type(limits).__name__}")
    return OpenOptions(
        format=format,
        checksums=bool(checksums),
        table=table,
        io=io,
        decoded_chunk_bytes=limits.decoded_chunk_bytes,
        decoded_bytes=limits.decoded_bytes,
        spool_bytes=limits.spool_bytes,
        open_files=limits.open_files,
        cache_bytes=cache_bytes,
        threads=threads,
    )


def tell_if_worker() -> None:
    """Tells the core if this process was started by `multiprocessing`: then others have the other cores.

    A forked child is known without; one that was started anew has a name before it knows its parent.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is not None and (
        process.parent_process() is not None or process.current_process().name != "MainProcess"
    ):
        _core.set_worker()
