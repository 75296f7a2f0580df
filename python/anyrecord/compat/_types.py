"""What the drop-ins share about names of files. Apart from this, they use only the public names of `anyrecord`."""

from __future__ import annotations

import os

from anyrecord._locations import StrPath, is_url, shown, split_query, text_of
from anyrecord._targets import target_path

__all__ = ["StrPath", "exact", "is_url", "shown", "split_query", "target_path", "text_of"]


def exact(path: str) -> StrPath:
    """A name without patterns: `*`, `@` and brackets in a URL have no special meaning. A local file must exist."""
    return _ExactName(path) if is_url(path) else path


class _ExactName(os.PathLike[str]):
    """A path object is never a pattern."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __fspath__(self) -> str:
        return self._name
