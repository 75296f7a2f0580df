"""The line of all chunks, which a `ShardPlan` cuts into shards.

Each chunk is as long as its stored bytes, and a little more for each of its records, so that records of zero bytes
have a place, too. The table of the files is searched; nothing is kept but a few numbers for each file.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Protocol

from anyrecord._records import Records

__all__ = ["Line", "line_of"]

_BYTE = 256
"""How long a byte is. A record adds 1."""


class Line(Protocol):
    """Where chunks begin."""

    bytes: int
    """The stored bytes of all chunks."""
    chunks: int
    """How many chunks there are."""
    length: int
    """The length of the line: bytes and records together."""

    def find(self, place: int) -> tuple[int, int]:
        """The first chunk that begins at a place or after it: its first position, and the bytes before it."""
        ...

    def find_chunk(self, number: int) -> tuple[int, int]:
        """The same for the chunk of that number."""
        ...

    def identity(self) -> Any:
        """What is different if the line is different."""
        ...


def line_of(records: Records) -> Line:
    """The line of these records."""
    pieces = records._pieces()
    return _Scattered(records) if pieces is None else _Pieces(records, pieces)


class _Scattered:
    """Records that are not in the order of the files: each counts as a chunk, and all as equally large."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.chunks = len(records)
        self.bytes = records._mean_bytes() * self.chunks
        self.length = _BYTE * self.bytes + self.chunks

    def find(self, place: int) -> tuple[int, int]:
        return self.find_chunk(-(-place * self.chunks // self.length))

    def find_chunk(self, number: int) -> tuple[int, int]:
        return number, self.bytes * number // self.chunks

    def identity(self) -> Any:
        return "scattered", self._records._fingerprint, self.bytes, _names(self._records)


class _Pieces:
    """Records in the order of the files: pieces of files, one after the other."""

    def __init__(self, records: Records, pieces: list[tuple[int, int, int, int]]) -> None:
        self._records = records
        # Of each piece: its first position, the number of its first record and of its first chunk in the file, and
        # where that chunk begins. Then what is before the piece: bytes and chunks. All have an entry for the end.
        self._positions, self._records_before, self._numbers = array("Q"), array("Q"), array("Q")
        self._offsets, self._bytes, self._chunks = array("Q"), array("Q"), array("Q")
        # The bytes of pieces whose records have no place in the file, because it is one compressed stream.
        self._streams: dict[int, int] = {}
        self.bytes = self.chunks = 0
        abouts = records._source.descriptions() if pieces else []
        for position, file, first, count in _merged(records, pieces):
            begin, end = records._chunk(position), records._chunk(position + count - 1)
            size = end[4] - begin[3]
            if size == 0:
                size = self._streams[len(self._positions)] = abouts[file][3] * count // abouts[file][1]
            self._add(position, first, begin[0], begin[3])
            self.bytes += size
            self.chunks += end[0] - begin[0] + 1
        self._add(len(records), 0, 0, 0)
        self.length = _BYTE * self.bytes + len(records)

    def _add(self, position: int, first: int, number: int, offset: int) -> None:
        self._positions.append(position)
        self._records_before.append(first)
        self._numbers.append(number)
        self._offsets.append(offset)
        self._bytes.append(self.bytes)
        self._chunks.append(self.chunks)

    def find(self, place: int) -> tuple[int, int]:
        count = len(self._positions) - 1
        piece = bisect_right(range(count), place, key=lambda k: _BYTE * self._bytes[k] + self._positions[k]) - 1
        return self._search(piece, place, lambda start, before, _: _BYTE * before + start)

    def find_chunk(self, number: int) -> tuple[int, int]:
        piece = bisect_right(range(len(self._positions) - 1), number, key=lambda k: self._chunks[k]) - 1
        return self._search(piece, number, lambda _, __, chunks: chunks)

    def _search(self, piece: int, wanted: int, place_of: Any) -> tuple[int, int]:
        """The first chunk of a piece, or of the next one, whose place is not before the wanted one."""
        begin, end = self._positions[piece], self._positions[piece + 1]
        # All positions of a chunk have the same place, so that the first one found is the beginning of a chunk.
        found = begin + bisect_left(range(begin, end), wanted, key=lambda at: place_of(*self._chunk_at(piece, at)))
        if found == end:
            return end, self._bytes[piece + 1]
        start, before, _ = self._chunk_at(piece, found)
        return start, before

    def _chunk_at(self, piece: int, position: int) -> tuple[int, int, int]:
        """Of the chunk that holds a position: its first position in the piece, and the bytes and chunks before it."""
        number, first, _, offset, _ = self._records._chunk(position)
        begin = self._positions[piece]
        start = begin + max(0, first - self._records_before[piece])
        into = offset - self._offsets[piece]
        if piece in self._streams:
            into = self._streams[piece] * (start - begin) // (self._positions[piece + 1] - begin)
        return start, self._bytes[piece] + into, self._chunks[piece] + number - self._numbers[piece]

    def identity(self) -> Any:
        numbers = self._positions, self._records_before, self._numbers, self._offsets, self._bytes, self._chunks
        return "pieces", [column.tolist() for column in numbers], self.bytes, self.chunks, _names(self._records)


def _merged(records: Records, pieces: list[tuple[int, int, int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """The same pieces. Two that are neighbours in a file are one, so that no chunk between them is cut."""
    names = [absolute or number for number, (*_, absolute) in enumerate(records._source.files())]
    last: tuple[int, int, int, int] | None = None
    for position, file, first, count in pieces:
        if last is not None and names[last[1]] == names[file] and last[2] + last[3] == first:
            last = *last[:3], last[3] + count
            continue
        if last is not None:
            yield last
        last = position, file, first, count
    if last is not None:
        yield last


def _names(records: Records) -> list[str]:
    """The names of the files, without their folders, which may be others on another host."""
    return [path.rpartition("/")[2] for path in records.paths]
