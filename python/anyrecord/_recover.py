"""`recover`: finishes or takes back the publishing of a set of files that was interrupted."""

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
    """What `recover` did. True if there was something to recover."""

    interrupted: bool
    """Whether publishing had been interrupted. If not, nothing was changed."""
    kept: Literal["old", "new"] | None
    """Which set is there now; None if nothing had been interrupted."""
    paths: tuple[str, ...]
    """The files of that set. Empty if nothing had been interrupted, or if there was no old set."""

    def __bool__(self) -> bool:
        return self.interrupted


def recover(path: StrPath, *, keep: Literal["old", "new"]) -> Recovered:
    """Finishes the publishing of a set of shards that was interrupted by a kill or a crash, or takes it back.

    `path` is the name that was given to `create` or `convert`: `"train.ffr"`, or the folder for a conversion into a
    folder. `keep="new"` makes the new set visible and deletes the old one; `keep="old"` does the reverse. Either way
    the set is whole afterwards.

    >>> import anyrecord
    >>> with anyrecord.create("train.ffr", shards=2, overwrite=True) as out:
    ...     out.write_many([b"one", b"two"])
    >>> anyrecord.recover("train.ffr", keep="new")      # nothing was interrupted
    Recovered(interrupted=False, kept=None, paths=())

    `open` and all other readers raise `PublishError` where a publish was interrupted, and name this function. It can be
    called at any time, and again after it was itself interrupted. It raises `PublishError` and changes nothing

    - while a running process publishes the set;
    - if files of the set that is to be kept are gone.
    """
    name = target_path(path)
    if keep not in ("old", "new"):
        raise ValueError(f"keep={keep!r} is not valid: it must be 'old' or 'new'")
    is_folder = os.path.isdir(name)
    # The whole path, so that errors name the file wherever they are read.
    name = os.path.abspath(name)
    paths = _core.recover(_core.journal_path(name, is_folder), keep == "new")
    if paths is not None:
        return Recovered(True, keep, tuple(paths))
    _refuse_other_names(name, is_folder)
    return Recovered(False, None, ())


def _refuse_other_names(path: str, is_folder: bool) -> None:
    """Raises PublishError, which tells the right name, if there is a journal that `path` means in another way."""
    if is_folder and (journals := journals_in(path)):
        _core.refuse_journal(journals[0])
    refuse_unfinished_file(path)
    refuse_unfinished_file(re.sub("@[0-9]+$", "", path))
    refuse_unfinished_matches(path)
