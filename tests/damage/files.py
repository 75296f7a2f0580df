"""Files in which chosen records are damaged, and what reading on must give. The reader is not asked what is damaged."""

from __future__ import annotations

import gzip
import io
import random
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import anyrecord

N = 60
"""How many records each file has."""


def _records() -> tuple[bytes, ...]:
    source = random.Random(20261115)
    sizes = [source.randrange(20, 200) for _ in range(N)]
    sizes[30] = 70_000  # longer than a block of Riegeli
    return tuple(b"%04d" % i + source.randbytes(size) for i, size in enumerate(sizes))


RECORDS = _records()
"""All of them differ, and they do not compress: the size of a file does not depend on them."""
NUMBERS = {record: number for number, record in enumerate(RECORDS)}


@dataclass(frozen=True, eq=False)
class Kind:
    """A format written in one way."""

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    per_chunk: int = 1
    """How many records share a chunk, and are damaged together."""
    wrap: Callable[[bytes], bytes] = bytes
    """What is done to the whole file, after it was damaged."""

    @property
    def suffix(self) -> str:
        return {"ffrecord": ".ffr", "riegeli": ".riegeli"}.get(self.format, f".{self.format}")

    def write(self, records: Iterable[bytes]) -> bytes:
        """The bytes of a file."""
        records = list(records)
        # RecordIO decides by bytes when a chunk ends. Files with one chunk each, one after the other, are a file, too.
        parts = [records[i : i + self.per_chunk] for i in range(0, len(records), self.per_chunk)]
        return b"".join(map(self._write, parts)) if self.format == "recordio" else self._write(records)

    def _write(self, records: list[bytes]) -> bytes:
        file = io.BytesIO()
        with anyrecord.create(file, format=self.format, **self.options) as out:
            out.write_many(records)
        return file.getvalue()

    def lost(self, damaged: Iterable[int]) -> set[int]:
        """The records that cannot be read if these are damaged."""
        chunks = {number // self.per_chunk for number in damaged}
        return {number for number in range(N) if number // self.per_chunk in chunks}


KINDS = {
    "ffrecord": Kind("ffrecord"),
    "tfrecord": Kind("tfrecord"),
    "tfrecord-gzip": Kind("tfrecord", wrap=gzip.compress),
    "tfrecord-zlib": Kind("tfrecord", wrap=zlib.compress),
    "recordio-snappy": Kind("recordio", per_chunk=7),
    "recordio-gzip": Kind("recordio", {"codec": "gzip"}, per_chunk=7),
    "recordio-none": Kind("recordio", {"codec": "none"}, per_chunk=7),
    "array_record-none": Kind("array_record", {"codec": "none"}),
    "array_record-zstd": Kind("array_record", {"codec": "zstd"}),
    "array_record-none-groups": Kind("array_record", {"codec": "none", "group_size": 7}, per_chunk=7),
    "array_record-brotli-groups": Kind("array_record", {"codec": "brotli", "level": 1, "group_size": 7}, per_chunk=7),
    "array_record-transposed": Kind(
        "array_record", {"codec": "snappy", "transpose": True, "group_size": 7}, per_chunk=7
    ),
}


@cache
def _undamaged(kind: Kind) -> bytes:
    return kind.write(RECORDS)


@cache
def _place(kind: Kind, number: int) -> int:
    """A byte that belongs to the data of a record: the last one that differs if the record differs."""
    other = list(RECORDS)
    record, middle = RECORDS[number], len(RECORDS[number]) // 2
    other[number] = record[:middle] + bytes([record[middle] ^ 0x5A]) + record[middle + 1 :]
    data, changed = _undamaged(kind), kind.write(other)
    assert len(data) == len(changed)
    return max(i for i, (a, b) in enumerate(zip(data, changed, strict=True)) if a != b)


def file_of(kind: Kind, damaged: Iterable[int] = ()) -> bytes:
    """A file of `RECORDS` in which the data of some records is damaged."""
    data = bytearray(_undamaged(kind))
    for place in {_place(kind, number) for number in damaged}:  # records of one chunk may have the same
        data[place] ^= 0x10
    return kind.wrap(bytes(data))


def substitute(error: Exception) -> bytes:
    """A function for `on_error`."""
    return b"instead of %d" % error.record  # type: ignore[attr-defined]  # every error of a record has it


POLICIES: dict[str, Any] = {"skip": "skip", "replace": "replace", "function": substitute}


def expected(numbers: Iterable[int], lost: set[int], policy: str) -> list[bytes]:
    """What reading these records must give."""
    found = []
    for number in numbers:
        if number not in lost:
            found.append(RECORDS[number])
        elif policy == "replace":
            after = (other % N for other in range(number + 1, number + N))
            found.append(RECORDS[next(other for other in after if other not in lost)])
        elif policy == "function":
            found.append(b"instead of %d" % number)
    return found
