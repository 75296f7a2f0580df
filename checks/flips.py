"""Changes every byte of files, bit by bit: reading gives an error or the same records, and `verify` reports it."""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path

from checks.cases import write_small_files
from checks.damage import damage, golden_files
from checks.figures import Figure

__all__ = ["run"]


def run(short: bool) -> list[Figure]:
    """Changes the golden files and reads them; changes files of our own and verifies them."""
    read = damage("read", golden_files(), short)
    with tempfile.TemporaryDirectory() as folder:
        ours = write_small_files(Path(folder), short)
        verified = damage("verify", ours, short)
        meaningless = 0
        for path, at, byte in verified.unseen:
            if _is_meaningless(Path(path).read_bytes(), at, byte):
                meaningless += 1
            else:
                verified.violations.append(f"{Path(path).name}: verify does not report byte {at} = {byte:#04x}")
    return [
        read.figure("changes of one byte of the golden files, read", 2_000_000 if short else 10_000_000),
        verified.figure("changes of one byte of files that we wrote, verified", 100_000),
        Figure("of them in bits of a gzip or deflate stream that mean nothing", meaningless),
        Figure("changes of the count of a RecordIO chunk, which end in an error", read.notes.get("renumbered", 0)),
    ]


def _is_meaningless(data: bytes, at: int, byte: int) -> bool:
    """Whether a change is in bits of a gzip or zlib stream that mean nothing, so that nobody can see it.

    - RFC 1952: FTEXT, MTIME, XFL and OS in the header of a gzip stream. Every value is valid, and other writers store
      other values. No checksum covers them.
    - RFC 1951: a deflate block ends at any bit, and what is behind it may begin at the next byte. Every reader skips
      the bits between them, and the checksum is that of the unpacked bytes.

    For each of them, another implementation has to unpack the same bytes.
    """
    if data[:2] != b"\x1f\x8b" and data[:1] != b"\x78":
        return False
    changed = data[:at] + bytes([byte]) + data[at + 1 :]
    return _unpacked(changed) == _unpacked(data)


def _unpacked(data: bytes) -> tuple[bytes, bytes] | None:
    stream = zlib.decompressobj(wbits=47)
    try:
        return stream.decompress(data), stream.unused_data if stream.eof else b"cut"
    except zlib.error:
        return None
