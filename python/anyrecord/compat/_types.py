"""What the drop-ins share about names of files. Apart from this, they use only the public names of `anyrecord`."""

from __future__ import annotations

import glob
import os

from anyrecord._locations import StrPath, is_url, refuse_mangled_url, shown, split_query, text_of
from anyrecord._paths import expand

__all__ = ["StrPath", "exact", "files_in", "is_url", "name_of", "shown", "split_query", "text_of"]


def name_of(path: StrPath) -> str:
    """A path as text. ValueError for a path object that was made from a URL and has lost a slash of it."""
    if not isinstance(path, str):
        refuse_mangled_url(path)
    return os.fspath(path)


def exact(path: str) -> StrPath:
    """A name without patterns: `*`, `@` and brackets in a URL have no special meaning. A local file must exist."""
    return _ExactName(path) if is_url(path) else path


def files_in(folder: str, names: str) -> list[str]:
    """The URLs of the objects in a folder whose names match. Each has the login and the query of the folder's URL."""
    front, query = split_query(folder)
    return [file.path for file in expand(f"{glob.escape(front.rstrip('/'))}/{names}{query}")]


class _ExactName(os.PathLike[str]):
    """A path object is never a pattern."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __fspath__(self) -> str:
        return self._name
