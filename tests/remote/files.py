"""Record files that tests put into stores."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import anyrecord


def bytes_of(format: str, records: Iterable[bytes], **options: Any) -> bytes:
    """The bytes of a file with these records."""
    out = io.BytesIO()
    with anyrecord.create(out, format=format, **options) as writer:
        writer.write_many(records)
    return out.getvalue()
