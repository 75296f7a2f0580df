"""CRC32C and CRC64NVME, fast enough for parts of uploads: numpy goes through many stretches of the data at once."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

_STRETCHES = 4096
_Words = NDArray[np.uint64]


def crc32c(data: bytes) -> int:
    """As Google Cloud Storage has it."""
    return _crc(data, 32, 0x82F63B78)


def crc64nvme(data: bytes) -> int:
    """As S3 has it, and Azure by the name CRC64."""
    return _crc(data, 64, 0x9A6C9329AC4BC9B5)


def _crc(data: bytes, bits: int, polynomial: int) -> int:
    """Both begin with all ones, go from the lowest bit, and end inverted."""
    ones = (1 << bits) - 1
    table = _table(polynomial)
    length = len(data) // _STRETCHES
    state = ones
    if length:
        rows = np.frombuffer(data, np.uint8, _STRETCHES * length).reshape(_STRETCHES, length)
        found = np.zeros(_STRETCHES, np.uint64)
        for column in np.ascontiguousarray(rows.T):
            found = table[(found ^ column) & 0xFF] ^ (found >> np.uint64(8))
        # A stretch that follows another: what came before is moved on by the length of the stretch.
        moves = _moves(polynomial, bits, length)
        for value in found.tolist():
            state = value ^ _moved(moves, state)
    words = [int(word) for word in table]
    for byte in data[_STRETCHES * length :]:
        state = words[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ ones


@cache
def _table(polynomial: int) -> _Words:
    words = []
    for word in range(256):
        for _ in range(8):
            word = (word >> 1) ^ (polynomial if word & 1 else 0)
        words.append(word)
    return np.array(words, np.uint64)


def _moved(moves: list[list[int]], state: int) -> int:
    moved = 0
    for table in moves:
        moved ^= table[state & 0xFF]
        state >>= 8
    return moved


@cache
def _moves(polynomial: int, bits: int, length: int) -> list[list[int]]:
    """For each byte of a state: what each of its values becomes after `length` bytes of zeros."""
    table = _table(polynomial)
    states = np.array([1 << bit for bit in range(bits)], np.uint64)
    for _ in range(length):
        states = table[states & 0xFF] ^ (states >> np.uint64(8))
    of_bits = states.tolist()
    moves = []
    for byte in range(bits // 8):
        row = [0] * 256
        for value in range(1, 256):
            lowest = value & -value
            row[value] = row[value ^ lowest] ^ of_bits[8 * byte + lowest.bit_length() - 1]
        moves.append(row)
    return moves
