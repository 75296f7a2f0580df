"""Locations that a user can pass: local paths. URLs are recognised by their scheme and refused."""

from __future__ import annotations

import os
import re
from typing import TypeAlias

__all__ = ["StrPath", "refuse_mangled_url", "refuse_url"]

StrPath: TypeAlias = str | os.PathLike[str]
"""The name of a file: a `str`, which can be a pattern, or a path object, which is one file or folder."""

# A scheme has at least two characters, because "C:" is a drive on Windows.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# `pathlib` turns "gs://bucket/x" into "gs:/bucket/x", or into "gs:\bucket\x" on Windows.
_MANGLED_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):[/\\]+")


def refuse_url(text: str) -> None:
    """Raises ValueError if `text` is a URL.

    >>> refuse_url("data/train.ffr")
    >>> refuse_url("C:/data/train.ffr")
    >>> refuse_url("gs://bucket/train.ffr")
    Traceback (most recent call last):
    ValueError: 'gs://bucket/train.ffr' is a URL, and gs:// is not supported; pass a local path
    """
    match = _URL.match(text)
    if match is not None:
        raise ValueError(f"{text!r} is a URL, and {match[1]}:// is not supported; pass a local path")


def refuse_mangled_url(path: os.PathLike[str]) -> None:
    """Raises ValueError if `path` was made from a URL: `pathlib` drops one of its slashes.

    >>> from pathlib import Path
    >>> refuse_mangled_url(Path("data/train.ffr"))
    >>> refuse_mangled_url(Path("gs://bucket/train.ffr"))
    Traceback (most recent call last):
    ValueError: 'gs:/bucket/train.ffr' looks like a gs:// URL that a path object has changed; pass a URL as a str, ...
    """
    text = os.fspath(path)
    match = _MANGLED_URL.match(text) if isinstance(text, str) else None
    if match is not None:
        raise ValueError(
            f"{text!r} looks like a {match[1]}:// URL that a path object has changed; pass a URL as a str, "
            "and a local path of that name as an absolute path"
        )
