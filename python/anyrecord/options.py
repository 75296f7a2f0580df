"""How to open: the options that `open`, `info` and `verify` share."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from operator import index
from typing import Literal, SupportsIndex

from anyrecord import _core

__all__ = ["Limits", "OpenOptions"]


MOST_THREADS = 1024

_MOST = {
    "decoded_chunk_bytes": 2**63 - 1,
    "decoded_bytes": 2**63 - 1,
    "spool_bytes": 2**63 - 1,
    "open_files": 2**20,
}
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
            value = getattr(self, name)
            most = _MOST[name]
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise ValueError(f"Limits({name}={value!r}): it must be a whole number from 1 to {most}")


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
    cache_bytes: int = 64 << 20,
    threads: int | None = None,
) -> OpenOptions:
    """Checks the keywords and gathers them."""
    tell_if_worker()
    if table not in ("memory", "disk"):
        raise ValueError(f"table={table!r} is not valid: it must be 'memory' or 'disk'")
    if io not in ("auto", "plain", "map", "direct"):
        raise ValueError(f"io={io!r} is not valid: it must be 'auto', 'plain', 'map' or 'direct'")
    if not isinstance(cache_bytes, int) or isinstance(cache_bytes, bool) or not 0 <= cache_bytes < 1 << 63:
        raise ValueError(f"cache_bytes={cache_bytes!r} is not valid: it must be a number of bytes, 0 or more")
    if threads is not None and not 1 <= whole_number("threads", threads) <= MOST_THREADS:
        raise ValueError(f"threads={threads!r} is not valid: it must be from 1 to {MOST_THREADS}, or None")
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


def whole_number(name: str, value: SupportsIndex, *, least: int = 0) -> int:
    """An argument that the core takes as an unsigned 64-bit number."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}") from None
    if not least <= number < 1 << 64:
        raise ValueError(f"{name}={number} is not valid: it must be a whole number from {least} to 2**64 - 1")
    return number
