"""Files for tests of verbs: good ones and damaged ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyrecord

__all__ = ["RECORDS", "break_record", "make", "make_folder", "names"]

RECORDS = [b"record no. %d" % number for number in range(100)]


def make(name: str, records: list[bytes] = RECORDS, **options: Any) -> str:
    """Writes a record file."""
    with anyrecord.create(name, durable=False, **options) as out:
        out.write_many(records)
    return name


def break_record(name: str, record: bytes = RECORDS[7]) -> str:
    """Changes one bit of a record in a file that is not compressed."""
    data = bytearray(Path(name).read_bytes())
    data[data.index(record)] ^= 1
    Path(name).write_bytes(data)
    return name


def make_folder(name: str = "pets") -> str:
    """A folder to pack."""
    os.makedirs(f"{name}/dogs")
    Path(name, "cat.txt").write_text("this is a cat")
    Path(name, "dogs/rex.txt").write_text("this is Rex")
    return name


def names(folder: str = ".") -> list[str]:
    """All names in a folder, hidden ones too."""
    return sorted(os.listdir(folder))
