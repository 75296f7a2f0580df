"""RecordIO chunks whose checksum is right, and whose claims are not.

at byte   0  magic, 04 03 02 01
          4  checksum of the payload
          8  codec: 0 none, 1 snappy, 2 gzip
         12  size of the payload
         16  number of records
         20  payload
"""

from __future__ import annotations

import struct
import zlib

__all__ = ["CLAIMS", "chunk", "record"]


def chunk(payload: bytes, records: int, codec: int = 0, size: int | None = None) -> bytes:
    """A chunk with a right checksum, whatever else it claims."""
    size = len(payload) if size is None else size
    return struct.pack("<4s4I", b"\4\3\2\1", zlib.crc32(payload), codec, size, records) + payload


def record(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


CLAIMS: tuple[tuple[bytes, str], ...] = (
    (chunk(record(b"x"), 0), "impossible number of records"),
    (chunk(record(b"x"), 1 << 31), "impossible number of records"),
    (chunk(record(b"x"), 1, codec=3), "unknown codec"),
    (chunk(record(b"x"), 1, size=1 << 31), "chunk payload"),
    (chunk(b"", 1), "impossible number of records"),
    (chunk(struct.pack("<I", 1 << 31) + b"x", 1), "past the end of its chunk"),
    (chunk(record(b"x") + b"\0", 1), "after the last record"),
    (chunk(record(b"x") + b"\0\0", 2), "impossible number|fewer records"),
    (chunk(record(b"xyz"), 2, codec=1), "snappy"),
    (chunk(record(b"xyz"), 1, codec=2), "gzip"),
)
"""Each with what the error says."""
