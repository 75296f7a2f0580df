"""Small files of every format and codec. Each record contains its own number, so a wrong record is seen."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import anyrecord

__all__ = ["IOS", "USUAL", "VARIANTS", "Io", "Variant", "record", "write"]

Io = Literal["auto", "plain", "map", "direct"]
IOS: tuple[Io, ...] = ("auto", "plain", "map", "direct")


@dataclass(frozen=True)
class Variant:
    """One way to write a format."""

    name: str
    suffix: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


VARIANTS = (
    Variant("array_record none", ".array_record", {"codec": "none"}),
    Variant("array_record snappy", ".array_record", {"codec": "snappy"}),
    Variant("array_record zstd", ".array_record", {"codec": "zstd"}),
    Variant("array_record brotli", ".array_record", {"codec": "brotli", "level": 1}),
    Variant("array_record groups", ".array_record", {"codec": "none", "group_size": 7}),
    Variant("array_record zstd groups", ".array_record", {"codec": "zstd", "group_size": 7}),
    Variant("array_record transposed", ".array_record", {"codec": "snappy", "transpose": True, "group_size": 5}),
    Variant("array_record padded", ".array_record", {"codec": "none", "pad_to_block_boundary": True}),
    Variant("ffrecord", ".ffr"),
    Variant("recordio none", ".recordio", {"codec": "none", "chunk_bytes": 80_000}),
    Variant("recordio snappy", ".recordio", {"codec": "snappy", "chunk_bytes": 80_000}),
    Variant("recordio gzip", ".recordio", {"codec": "gzip", "level": 1, "chunk_bytes": 80_000}),
    Variant("tfrecord none", ".tfrecord"),
    Variant("tfrecord gzip", ".tfrecord", {"codec": "gzip"}),
    Variant("tfrecord zlib", ".tfrecord", {"codec": "zlib"}),
)
"""Every format in every codec."""

USUAL = tuple(variant for variant in VARIANTS if variant.name.split()[-1] in ("ffrecord", "none"))
"""One of each format: uncompressed, so that no decoder stands between the file and the record."""


@cache
def record(number: int) -> bytes:
    """The number, then up to 3 kilobytes that depend on it and that no codec makes smaller. A few have 70 kilobytes."""
    size = 70_001 if number % 40 == 7 else number * 37 % 3001
    return b"%d:" % number + random.Random(number).randbytes(size)


def write(path: Path, variant: Variant, numbers: Iterable[int]) -> Path:
    """Writes the records of these numbers. Replaces an existing file by a rename."""
    with anyrecord.create(path, overwrite=True, durable=False, **variant.options) as out:
        out.write_many(record(number) for number in numbers)
    return path
