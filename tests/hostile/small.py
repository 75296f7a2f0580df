"""A file small enough that every byte of it can be damaged, and what reading a damaged one may come to."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

import anyrecord
from anyrecord import FormatError, RecordError, Records
from conformance.formats import Case

RECORDS = (b"first", b"", b"\x00\xff\x80", b"a little longer than the others")
"""Four of them, so that one flipped bit makes the count 0 where it is stored as a number."""


def small_file(case: Case) -> bytes:
    """The bytes of a file of `RECORDS`."""
    file = io.BytesIO()
    with anyrecord.create(file, format=case.format.name, **case.options) as out:
        out.write_many(RECORDS)
    return file.getvalue()


LONG_RUN = re.compile(rb"\0{300,}")


def places(data: bytes) -> list[int]:
    """Offsets to damage: all of them, but inside long runs of zeros, which are padding, only the edges and a few."""
    dull: set[int] = set()
    for run in LONG_RUN.finditer(data):
        dull.update(range(run.start() + 70, run.end() - 70))
        dull.difference_update(range(run.start(), run.end(), 4099))
    return [offset for offset in range(len(data)) if offset not in dull]


@dataclass(frozen=True)
class Outcome:
    """What came of opening and reading a file: what was read, and the error that ended it."""

    records: tuple[bytes, ...]
    error: RecordError | None
    opened: bool


def read_all(source: object, format: str | None = None, index: int | None = None) -> Outcome:
    """Opens and reads everything, or the one record. Any exception but a `RecordError` is a failure of the test."""
    try:
        records: Records = anyrecord.open(source, format=format)  # type: ignore[arg-type]
    except RecordError as error:
        return Outcome((), error, opened=False)
    with records:
        found: list[bytes] = []
        try:
            for record in records if index is None else (records[index],):
                found.append(record)
        except RecordError as error:
            return Outcome(tuple(found), error, opened=True)
    return Outcome(tuple(found), None, opened=True)


def is_reported(source: object, format: str | None = None) -> bool:
    """Whether `verify` finds anything wrong."""
    try:
        return not anyrecord.verify(source, format=format)  # type: ignore[arg-type]
    except FormatError:
        return True  # no format recognises it, which is a way to say so
