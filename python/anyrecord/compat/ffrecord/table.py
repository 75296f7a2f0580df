"""The table at the beginning of a file, with the checksums and offsets of its samples as arrays."""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import anyrecord
from anyrecord.compat._types import exact, is_url
from anyrecord.compat.runtime_errors import MismatchError, TruncatedFileError

__all__ = ["Table", "check_tables", "read_table"]

_HEADER_BYTES = 12
_ENTRY_BYTES = 12


class Table(NamedTuple):
    """The table of a file."""

    checksums: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    """One entry for each sample, then the size of the file."""


def read_table(path: str, *, check: bool) -> Table:
    """Reads the table of a file. Verifies the checksum of the table if `check`."""
    if is_url(path):
        return _table_of_url(path, check)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEADER_BYTES)
        stored, n = int.from_bytes(head[:4], "little"), int.from_bytes(head[4:], "little", signed=True)
        if len(head) < _HEADER_BYTES or not 0 <= n <= (size - _HEADER_BYTES) // _ENTRY_BYTES:
            raise TruncatedFileError(f"{path}: {size} bytes cannot hold a table of {n} samples", path=path, offset=4)
        checksums: NDArray[Any] = np.fromfile(file, "<u4", n)
        offsets: NDArray[Any] = np.fromfile(file, "<i8", n)
    if check and not stored:
        warnings.warn(f"{path} is an old FFRecord file whose table has no checksum", stacklevel=3)
    elif check:
        computed = zlib.crc32(offsets.data.cast("B"), zlib.crc32(checksums.data.cast("B"), zlib.crc32(head[4:])))
        if computed != stored:
            raise MismatchError(
                f"'checksum == checksum_meta' failed. {path}: checksum of metadata mismached!\n"
                f"expected {stored:#010x}, found {computed:#010x}",
                path=path,
                offset=0,
                expected=f"{stored:#010x}",
                found=f"{computed:#010x}",
            )
    return Table(checksums.astype(np.uint32), np.append(offsets, size).astype(np.int64))


def check_tables(paths: Sequence[str]) -> None:
    """Verifies the checksums of the tables of files. Opening does that for objects, all of them together."""
    if urls := [exact(path) for path in paths if is_url(path)]:
        anyrecord.open(urls, format="ffrecord").close()
    for path in paths:
        if not is_url(path):
            read_table(path, check=True)


def _table_of_url(path: str, check: bool) -> Table:
    """The same facts from the records: there is no other access to the bytes of an object."""
    with anyrecord.open([exact(path)], format="ffrecord", checksums=check) as records:
        begin = _HEADER_BYTES + _ENTRY_BYTES * len(records)
        offsets = begin + np.concatenate([[0], np.cumsum(np.asarray(records.sizes(), np.int64))])
        checksums = np.array([zlib.crc32(record) for record in records], np.uint32)
    return Table(checksums, offsets.astype(np.int64))
