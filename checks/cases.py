"""Every format in every way that it can be written, as small files: the tables of the tests, and more options."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyrecord
from conformance.formats import CASES
from hostile.small import RECORDS

__all__ = ["RECORD_SETS", "ways", "write_small_files"]

RECORD_SETS: dict[str, tuple[bytes, ...]] = {
    "few": RECORDS,
    "none": (),
    "empty": (b"",),
    "protos": tuple(b"\x0a\x04name\x10%c" % number for number in range(1, 9)),
}
"""What is written. A record of "protos" is a message, which the transposed encoding takes apart."""

_CODECS: dict[str, tuple[tuple[str, int | None], ...]] = {
    "array_record": (("none", None), ("zstd", None), ("zstd", 19), ("brotli", 1), ("brotli", 9), ("snappy", None)),
    "recordio": (("none", None), ("snappy", None), ("gzip", 1), ("gzip", 9)),
    "tfrecord": (("none", None), ("gzip", 1), ("gzip", 9), ("zlib", 1), ("zlib", 9)),
    "ffrecord": (("", None),),
}
_OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "array_record": (
        {},
        {"group_size": 2},
        {"transpose": True, "group_size": 3},
        {"pad_to_block_boundary": True, "group_size": 3},
    ),
    "recordio": ({}, {"chunk_bytes": 48}),
    "tfrecord": ({},),
    "ffrecord": ({},),
}


def ways() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A name, a suffix and the options for `create`, for every format, codec and option."""
    suffixes = {case.format.name: case.suffix for case in CASES}
    for format, codecs in _CODECS.items():
        for (codec, level), options in itertools.product(codecs, _OPTIONS[format]):
            given = {
                **options,
                **({"codec": codec} if codec else {}),
                **({"level": level} if level is not None else {}),
            }
            name = "-".join([format, *(f"{key}={value}" for key, value in given.items())])
            yield name, suffixes[format], given


def write_small_files(folder: Path, short: bool) -> list[Path]:
    """Writes a small file of each set of records in each way: if `short`, of the first set, and of the others only in
    the plainest way. Leaves out files of 0 bytes."""
    paths = []
    for (name, suffix, options), (what, records) in itertools.product(ways(), RECORD_SETS.items()):
        if short and records is not RECORDS and options not in ({}, {"codec": "none"}):
            continue
        path = folder / f"{name}-{what}{suffix}"
        with anyrecord.create(path, durable=False, **options) as out:
            out.write_many(records)
        if path.stat().st_size > 0:
            paths.append(path)
    return paths
