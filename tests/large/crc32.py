"""CRC-32 of more bytes than anyone wants to read: the hash of a whole from the hashes of its parts."""

from __future__ import annotations

import zlib

__all__ = ["crc32_of_repeats", "crc32_of_two"]

_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31  # the polynomial 1: the highest bit is the lowest power


def _times(a: int, b: int) -> int:
    """The product of two polynomials over GF(2), modulo the polynomial of the CRC."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _shift_by(length: int) -> int:
    """x to the power of the bits in `length` bytes: what a CRC is multiplied by when so many bytes follow."""
    power, result = _ONE >> 8, _ONE
    while length:
        if length & 1:
            result = _times(power, result)
        power = _times(power, power)
        length >>= 1
    return result


def crc32_of_two(first: int, second: int, second_length: int) -> int:
    """The CRC of two parts one after the other, from the CRC of each.

    >>> crc32_of_two(zlib.crc32(b"abc"), zlib.crc32(b"defgh"), 5) == zlib.crc32(b"abcdefgh")
    True
    """
    return _times(_shift_by(second_length), first) ^ second


def crc32_of_repeats(part: bytes, times: int) -> int:
    """The CRC of `part` so many times over.

    >>> crc32_of_repeats(b"abc", 1000) == zlib.crc32(b"abc" * 1000)
    True
    """
    result, crc, length = 0, zlib.crc32(part), len(part)
    while times:
        if times & 1:
            result = crc32_of_two(result, crc, length)
        crc, length = crc32_of_two(crc, crc, length), 2 * length
        times >>= 1
    return result
