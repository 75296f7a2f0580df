"""Files of very many small records, to show that the cost of a read does not depend on the length of the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyrecord

from benches.results import Run

RECORD_BYTES = 120
"""A file of ten million records is then about 2 GB."""


def record(number: int) -> bytes:
    """The record with this number. It begins with the number."""
    return (b"%d " % number).ljust(RECORD_BYTES, b"abcdefgh"[number % 8 : number % 8 + 1])


def records(count: int) -> Iterator[bytes]:
    return map(record, range(count))


def array_record(run: Run, count: int) -> Path:
    """An uncompressed ArrayRecord file with one record a chunk. Written once in a run."""
    path = run.folder / f"{count}.array_record"
    if not path.exists():
        with anyrecord.create(path, codec="none", group_size=1, durable=False) as out:
            out.write_many(records(count))
    return path


def raw(run: Run, count: int) -> Path:
    """A file with only the same records, for the mmap-slice loop."""
    path = run.folder / f"{count}.raw"
    if not path.exists():
        with open(path, "wb") as out:
            out.writelines(records(count))
    return path


def lengths(run: Run) -> list[int]:
    """A thousand to ten million records."""
    return [10**power for power in range(3, 7 if run.quick else 8)]
