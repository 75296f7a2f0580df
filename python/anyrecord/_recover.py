"""`recover`: finishes or undoes the publishing of a set of files that was interrupted."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal

from anyrecord import _core
from anyrecord._locations import StrPath
from anyrecord._publishing import journals_in, refuse_unfinished_file, refuse_unfinished_matches
from anyrecord._targets import target_path

__all__ = ["Recovered", "recover"]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What `recover` did. It is true if there was something to recover."""

    interrupted: bool
    """Whether publishing was interrupted. If not, nothing was changed."""
    kept: Literal["old", "new"] | None
    """Which set was kept. None if nothing was interrupted."""
    paths: tuple[str, ...]
    """The files of the kept set. Empty if nothing was interrupted, or if the old set was kept and had no files."""

    def __bool__(self) -> bool:
        return self.interrupted


def recover(path: StrPath, *, keep: Literal["old", "new"]) -> Recovered:
    """Finishes or undoes the publishing of a set of shards, after a kill or a crash has interrupted it.

    >>> import anyrecord
    >>> with anyrecord.create("train.ffr", shards=2, overwrite=True) as out:
    ...     out.write_many([b"one", b"two"])
    >>> anyrecord.recover("train.ffr", keep="new")      # nothing was interrupted
    Recovered(interrupted=False, kept=None, paths=())

    `path` is the name that you passed to `create` or `convert`: `"train.ffr"`, or the folder of a conversion into a
    folder. `keep="new"` makes the new set visible and deletes the old one. `keep="old"` does the reverse. In both cases
    the set is complete afterwards.

    If publishing was interrupted, `open` and all other readers raise `PublishError`, which names this function. You can
    call it at any time, and again if it was itself interrupted. It raises `PublishError` and changes nothing

    - while a running process publishes the set;
    - if files of the set to keep are missing.
    """
    name = target_path(path)
    if keep not in ("old", "new"):
        raise ValueError(f"keep={keep!r} is not valid: it must be 'old' or 'new'")
    is_folder = os.path.isdir(name)
    # An absolute path, so error messages are clear without knowing the working directory.
    name = os.path.abspath(name)
    paths = _core.recover(_core.journal_path(name, is_folder), keep == "new")
    if paths is not None:
        return Recovered(True, keep, tuple(paths))
    _refuse_other_names(name, is_folder)
    return Recovered(False, None, ())


def _refuse_other_names(path: str, is_folder: bool) -> None:
    """Raises PublishError with the right name if a journal exists and `path` names the set in another way."""
    if is_folder and (journals := journals_in(path)):
        _core.refuse_journal(journals[0])
    refuse_unfinished_file(path)
    refuse_unfinished_file(re.sub("@[0-9]+$", "", path))
    refuse_unfinished_matches(path)
