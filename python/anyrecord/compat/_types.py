"""Types that the drop-ins share. The drop-ins use only the public names of `anyrecord`."""

from __future__ import annotations

import os
import re
from typing import TypeAlias

__all__ = ["StrPath", "exact", "is_url"]

StrPath: TypeAlias = str | os.PathLike[str]
"""The name of a file."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_url(path: str) -> bool:
    """Whether a path is a URL."""
    return _URL.match(path) is not None


def exact(path: str) -> StrPath:
    """A name without patterns: `*`, `@` and brackets in a URL have no special meaning. A local file must exist."""
    return _ExactName(path) if is_url(path) else path


class _ExactName(os.PathLike[str]):
    """A path object is never a pattern."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __fspath__(self) -> str:
        return self._name
