"""Records as rows: number, size, what they are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import anyrecord
from anyrecord._preview import PREVIEW_BYTES, Preview, preview

__all__ = ["Places", "Row", "as_json", "batched", "describe"]


class Row(NamedTuple):
    """A record, as far as it is shown."""

    number: int
    size: int
    preview: Preview


def describe(number: int, record: bytes, width: int = 60) -> Row:
    """Says what a record is. Only its beginning is looked at."""
    return Row(number, len(record), preview(memoryview(record)[:PREVIEW_BYTES], size=len(record), width=width))


class Places:
    """Where records are stored. Unlike `Records.locate`, it has the exact name of a file, also one that is not text."""

    def __init__(self, records: anyrecord.Records) -> None:
        files = records._source.files()
        self._records, self._paths = records, [file[0] for file in files]
        self._ends = list(accumulate(file[2] for file in files))

    def at(self, number: int) -> anyrecord.Location:
        """The place of a record, by its number."""
        found = self._records.locate(number)
        return found._replace(path=self._paths[bisect_right(self._ends, number)])


def as_json(row: Row, places: Places) -> dict[str, Any]:
    """A record for `--json`, with where it is stored."""
    about = {"record": row.number, "size": row.size, "kind": row.preview.kind}
    return about | places.at(row.number)._asdict()


def batched(rows: Iterable[Row], size: int = 200) -> Iterator[Sequence[Row]]:
    """Rows that are shown together: columns are as wide as these need."""
    batch: list[Row] = []
    try:
        for row in rows:
            batch.append(row)
            if len(batch) == size:
                yield batch
                batch = []
    except Exception:  # what comes before the damage is shown
        if batch:
            yield batch
        raise
    if batch:
        yield batch
