"""Files of very many small records: how reads cost the same in a file of any length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyrecord

from benches.results import Run

RECORD_BYTES = 120
"""So that a file of ten million records is about 2 GB."""


def record(number: int) -> bytes:
    """The record with a number, which begins with it."""
    return (b"%d " % number).ljust(RECORD_BYTES, b"abcdefgh"[number % 8 : number % 8 + 1])


def records(count: int) -> Iterator[bytes]:
    return map(record, range(count))


def array_record(run: Run, count: int) -> Path:
    """An uncompressed ArrayRecord file with a record in each chunk. Made once in a run."""
    path = run.folder / f"{count}.array_record"
    if not path.exists():
        with anyrecord.create(path, codec="none", group_size=1, durable=False) as out:
            out.write_many(records(count))
    return path


def raw(run: Run, count: int) -> Path:
    """The same records and nothing else, for a loop that slices a map."""
    path = run.folder / f"{count}.raw"
    if not path.exists():
        with open(path, "wb") as out:
            out.writelines(records(count))
    return path


def lengths(run: Run) -> list[int]:
    """A thousand to ten million."""
    return [10**power for power in range(3, 7 if run.quick else 8)]
