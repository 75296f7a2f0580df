"""Where each record of a whole file is, from the layout of its format alone. No code of anyrecord is used here."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Framed", "frame"]

_BLOCK, _BLOCK_HEADER = 1 << 16, 24


@dataclass(frozen=True)
class Framed:
    """A file whose layout is known."""

    format: str
    data: bytes
    chunks: tuple[tuple[int, int, tuple[bytes, ...]], ...]
    """`(begin, end, records)` of each chunk, with its framing."""
    table_end: int = 0
    """Where the table before the records ends. Without it, no record can be read."""
    wrapper: str | None = None
    """The compression of the whole file: `"gzip"` or `"zlib"`."""

    @property
    def records(self) -> list[bytes]:
        return [record for _, _, records in self.chunks for record in records]

    def after_damage(self, offset: int) -> list[bytes]:
        """The records whose chunk does not contain the damaged byte. A damaged table costs no record."""
        return [
            record
            for begin, end, records in self.chunks
            if self.wrapper or not begin <= offset < end
            for record in records
        ]

    def after_cut(self, size: int) -> list[bytes]:
        """The records that are whole in the first `size` bytes."""
        if size < self.table_end:
            return []
        whole = self.unpacked(size) if self.wrapper else size
        return [record for _, end, records in self.chunks if end <= whole for record in records]

    def unpacked(self, size: int) -> int:
        """How many bytes the first `size` bytes of a compressed file unpack to."""
        bits = 31 if self.wrapper == "gzip" else 15
        return len(zlib.decompressobj(bits).decompress(self.data[:size]))


def frame(format: str, data: bytes, records: Sequence[bytes]) -> Framed:
    """The layout of a whole file of these records."""
    wrapper = None
    if format == "tfrecord" and data[:2] in (b"\x1f\x8b", b"\x78\x9c"):
        wrapper = "gzip" if data[0] == 0x1F else "zlib"
        bounds = list(_tfrecord(zlib.decompress(data, 31 if wrapper == "gzip" else 15)))
    else:
        bounds = list(
            {"tfrecord": _tfrecord, "recordio": _recordio, "ffrecord": _ffrecord, "array_record": _riegeli}[format](
                data
            )
        )
    chunks, used = [], 0
    for begin, end, count in bounds:
        if used < len(records):  # what follows is the footer of an ArrayRecord file
            chunks.append((begin, end, tuple(records[used : used + count])))
            used += count
    assert used == len(records), f"{format}: {used} records, not {len(records)}"
    table_end = 12 + 12 * len(records) if format == "ffrecord" else 0
    return Framed(format, data, tuple(chunks), table_end, wrapper)


def _tfrecord(data: bytes) -> list[tuple[int, int, int]]:
    bounds, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        bounds.append((at, at + 16 + length, 1))
        at += 16 + length
    return bounds


def _recordio(data: bytes) -> list[tuple[int, int, int]]:
    bounds, at = [], 0
    while at < len(data):
        size, count = struct.unpack_from("<II", data, at + 12)
        bounds.append((at, at + 20 + size, count))
        at += 20 + size
    return bounds


def _ffrecord(data: bytes) -> list[tuple[int, int, int]]:
    (count,) = struct.unpack_from("<Q", data, 4)
    offsets = [*struct.unpack_from(f"<{count}Q", data, 12 + 4 * count), len(data)]
    return [(begin, end, 1) for begin, end in pairwise(offsets)]


def _riegeli(data: bytes) -> list[tuple[int, int, int]]:
    """The chunks that hold records, among them the footer and the postscript of an ArrayRecord file."""
    bounds, at = [], 0
    while at < len(data):
        header = _without_block_headers(data, at, 40)
        size, kind_and_count = struct.unpack_from("<Q", header, 8)[0], struct.unpack_from("<Q", header, 24)[0]
        end = max(_end(at, 40 + size), _boundary(at + (kind_and_count >> 8)))
        if kind_and_count >> 8:
            bounds.append((at, end, kind_and_count >> 8))
        at = end
    return bounds


def _end(begin: int, length: int) -> int:
    """Where `length` bytes of a chunk end. A block header every 65,536 bytes interrupts them."""
    at = begin
    while length:
        if at % _BLOCK == 0:
            at += _BLOCK_HEADER
        step = min(length, _BLOCK - at % _BLOCK)
        at, length = at + step, length - step
    return at


def _boundary(at: int) -> int:
    """The first offset from `at` on where a chunk may end: not inside a block header, nor directly after it."""
    return at if at % _BLOCK == 0 or at % _BLOCK > _BLOCK_HEADER else at - at % _BLOCK + _BLOCK_HEADER + 1


def _without_block_headers(data: bytes, at: int, length: int) -> bytes:
    found = b""
    while len(found) < length:
        if at % _BLOCK == 0:
            at += _BLOCK_HEADER
        step = min(length - len(found), _BLOCK - at % _BLOCK)
        found, at = found + data[at : at + step], at + step
    return found
