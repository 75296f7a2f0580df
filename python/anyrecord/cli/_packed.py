"""Packed folders, for verbs that know names as well as numbers."""

from __future__ import annotations

import anyrecord
from anyrecord._listing import MAGIC

__all__ = ["folder_of", "is_packed"]


def is_packed(records: anyrecord.Records) -> bool:
    """Whether these are the records of a packed folder. Its listing is the last record."""
    if records.format != "ffrecord" or len(records._source.files()) != 1 or not len(records):
        return False
    try:
        return records[-1].startswith(MAGIC)
    except anyrecord.RecordError:  # damage is told when that record is reached
        return False


def folder_of(records: anyrecord.Records) -> anyrecord.Folder:
    """The packed folder whose records are open already. It reads the same file, so that a pipe can be one."""
    folder = anyrecord.Folder.__new__(anyrecord.Folder)
    folder._load(records)
    return folder
