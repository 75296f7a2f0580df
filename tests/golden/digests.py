"""The digest by which manifests know the records of a file."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable


def digest(records: Iterable[bytes]) -> str:
    """SHA-256 of every record's length in 8 bytes and its bytes."""
    hashed = hashlib.sha256()
    for record in records:
        hashed.update(struct.pack("<Q", len(record)) + record)
    return hashed.hexdigest()
