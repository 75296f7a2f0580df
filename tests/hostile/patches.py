"""FFRecord headers patched field by field, with a CRC that is right again.

    at byte      size   field
    0            4      CRC-32 of bytes 4 .. 12 + 12 n
    4            8      n, the number of samples
    12           4 n    CRC-32 of each sample
    12 + 4 n     8 n    offset of each sample
    12 + 12 n           the samples

So nothing but the check of the structure can refuse the file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

__all__ = [
    "CHECKSUM",
    "COUNT",
    "DATA",
    "MAX",
    "OFFSET",
    "PATCHES",
    "SAMPLES",
    "SIZE",
    "N",
    "fix_checksum",
    "number",
    "patched",
    "plain",
]

SAMPLES = [bytes([65 + i]) * (10 + i) for i in range(8)]
N = len(SAMPLES)
DATA = 12 + 12 * N
SIZE = DATA + sum(map(len, SAMPLES))
MAX = 2**63 - 1

COUNT = 4
CHECKSUM = [12 + 4 * i for i in range(N)]
OFFSET = [12 + 4 * N + 8 * i for i in range(N)]


def plain() -> bytearray:
    """The file before it is patched, made here and not by our writer."""
    offsets = [DATA + sum(map(len, SAMPLES[:i])) for i in range(N)]
    table = struct.pack(f"<q{N}I{N}q", N, *map(zlib.crc32, SAMPLES), *offsets)
    return bytearray(struct.pack("<I", zlib.crc32(table)) + table + b"".join(SAMPLES))


def fix_checksum(file: bytearray) -> bytearray:
    """Makes the header's CRC right for the count that it claims, as far as the file goes."""
    (n,) = struct.unpack_from("<Q", file, COUNT)
    struct.pack_into("<I", file, 0, zlib.crc32(file[4 : min(12 + 12 * n, len(file))]))
    return file


def number(at: int, value: int) -> Callable[[bytearray], None]:
    return lambda file: struct.pack_into("<Q", file, at, value % 2**64)


def swap(one: int, other: int) -> Callable[[bytearray], None]:
    def patch(file: bytearray) -> None:
        file[one : one + 8], file[other : other + 8] = file[other : other + 8], file[one : one + 8]

    return patch


PATCHES: dict[str, tuple[Callable[[bytearray], None], str]] = {
    "n = 0": (number(COUNT, 0), "FormatError"),
    "n - 1": (number(COUNT, N - 1), "FormatError TruncatedError"),
    "n + 1": (number(COUNT, N + 1), "FormatError TruncatedError"),
    "n of a table up to the very end": (number(COUNT, (SIZE - 12) // 12), "FormatError TruncatedError"),
    "n of a table just past the end": (number(COUNT, (SIZE - 12) // 12 + 1), "TruncatedError"),
    "n = 2**28": (number(COUNT, 2**28), "TruncatedError"),
    "n = 2**40": (number(COUNT, 2**40), "TruncatedError"),
    "n whose table overflows 64 bits": (number(COUNT, 2**64 // 12 + 1), "FormatError"),
    "n = 2**63 - 1": (number(COUNT, MAX), "FormatError"),
    "n = -1": (number(COUNT, -1), "FormatError"),
    "n = -2**63": (number(COUNT, -(2**63)), "FormatError"),
    "first offset 0": (number(OFFSET[0], 0), "FormatError"),
    "first offset inside the table": (number(OFFSET[0], DATA - 1), "FormatError"),
    "first offset -1": (number(OFFSET[0], -1), "FormatError"),
    "middle offset 0": (number(OFFSET[4], 0), "FormatError"),
    "middle offset at the first": (number(OFFSET[4], DATA), "FormatError"),
    "middle offset -2**63": (number(OFFSET[4], -(2**63)), "FormatError"),
    "middle offset 2**63 - 1": (number(OFFSET[4], MAX), "TruncatedError"),
    "middle offset 2**40": (number(OFFSET[4], 2**40), "TruncatedError"),
    "middle offset past the end": (number(OFFSET[4], SIZE + 1), "TruncatedError"),
    "two offsets swapped": (swap(OFFSET[2], OFFSET[3]), "FormatError"),
    "first and last offset swapped": (swap(OFFSET[0], OFFSET[-1]), "FormatError"),
    "last offset past the end": (number(OFFSET[-1], SIZE + 1), "TruncatedError"),
    "last offset at the end": (number(OFFSET[-1], SIZE), "ChecksumError"),
    "last offset one late": (number(OFFSET[-1], SIZE - len(SAMPLES[-1]) + 1), "ChecksumError"),
    "last offset -1": (number(OFFSET[-1], -1), "FormatError"),
    "last offset 2**63 - 1": (number(OFFSET[-1], MAX), "TruncatedError"),
}
"""Each with the errors that opening or reading the file may raise."""


def patched(name: str) -> bytes:
    """The file with that patch."""
    file = plain()
    PATCHES[name][0](file)
    return bytes(fix_checksum(file))
