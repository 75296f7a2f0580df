"""How the tests of salvage call it."""

from __future__ import annotations

import io
from typing import Any

import anyrecord

__all__ = ["file_bytes", "saved", "saved_and_report"]


def file_bytes(format: str, records: list[bytes], **options: Any) -> bytes:
    """A whole file of the records."""
    file = io.BytesIO()
    with anyrecord.create(file, format=format, **options) as out:
        out.write_many(records)
    return file.getvalue()


def saved_and_report(data: Any, format: str | None = None, **options: Any) -> tuple[list[bytes], anyrecord.Salvaged]:
    """What `salvage` saves, and its report."""
    out = io.BytesIO()
    report = anyrecord.salvage(data, out, source_format=format, format="tfrecord", **options)
    records = list(anyrecord.open(out.getvalue(), format="tfrecord"))
    assert report.records == len(records)
    return records, report


def saved(data: Any, format: str | None = None, **options: Any) -> list[bytes]:
    """What `salvage` saves."""
    return saved_and_report(data, format, **options)[0]
