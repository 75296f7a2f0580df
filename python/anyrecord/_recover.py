"""`recover`: puts in order what killed writers left: an interrupted publish, and temporary files."""

from __future__ import annotations

import errno
import os
import re
from typing import Literal

from anyrecord import _core
from anyrecord._calls import add_note
from anyrecord._dataclasses import dataclass
from anyrecord._locations import StrPath
from anyrecord._publishing import journals_in, refuse_unfinished_file, refuse_unfinished_matches
from anyrecord._salvage import Salvaged, salvage
from anyrecord._shard_names import shard_paths
from anyrecord._targets import target_path
from anyrecord._temporaries import Found, Temporary, find, search
from anyrecord.errors import FormatError

__all__ = ["Recovered", "recover"]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What `recover` did. It is true if there was something to recover."""

    interrupted: bool
    """Whether publishing was interrupted."""
    kept: Literal["old", "new"] | None
    """Which set was kept. None if nothing was interrupted."""
    paths: tuple[str, ...]
    """The files of the kept set. Empty if nothing was interrupted, or if the old set was kept and had no files."""
    temporaries: tuple[Temporary, ...] = ()
    """The temporary files that were found, those of running processes too."""
    salvaged: tuple[Salvaged, ...] = ()
    """What `salvage` returned for each file, in the order of the new files. Empty without `salvage_to`."""

    def __bool__(self) -> bool:
        return self.interrupted or any(found.state in ("removed", "stale") for found in self.temporaries)


def recover(
    path: StrPath,
    *,
    keep: Literal["old", "new"] | None = None,
    remove: bool = True,
    salvage_to: StrPath | None = None,
) -> Recovered:
    """Puts in order what killed writers of `path` left: an interrupted publish, and temporary files.

    >>> import anyrecord
    >>> with anyrecord.create("train.ffr", shards=2, overwrite=True) as out:
    ...     out.write_many([b"one", b"two"])
    >>> done = anyrecord.recover("train.ffr")
    >>> bool(done), done.temporaries                    # nothing was left
    (False, ())

    `path` is the name that you passed to `create` or `convert`: `"train.ffr"`, or the folder of a conversion into a
    folder. For a folder, the temporary files of all names in it are meant.

    **Temporary files.** A process that is killed while it writes leaves hidden files. They are removed, or kept with
    `remove=False`. `salvage_to="saved.ffr"` writes the records in them to a new file with `salvage`, and removes
    nothing. The suffix chooses the format. If there are several, for example of a set of shards, the new files are
    `saved-00000-of-00003.ffr` and so on. The result lists all temporary files. Files of a running process are never
    touched: it holds a lock. Where it is unknown whether the process runs, the file is only listed. This is so if locks
    do not work on the file system, or if another machine wrote the file on a network file system.

    **Interrupted publishing.** If a process was killed while the files of a set got their names, `open` and all other
    readers raise `PublishError`, which names this function. `keep="new"` makes the new set visible and deletes the old
    one. `keep="old"` does the reverse. In both cases the set is complete afterwards. You can call this at any time, and
    again if it was itself interrupted. It raises `PublishError` and changes nothing

    - while a running process publishes the set;
    - if publishing was interrupted and you did not pass `keep`;
    - if files of the set to keep are missing.
    """
    name = target_path(path)
    if keep not in (None, "old", "new"):
        raise ValueError(f"keep={keep!r} is not valid: it must be 'old' or 'new'")
    saved = None if salvage_to is None else target_path(salvage_to)
    if saved is not None and _core.format_of_suffix(saved) is None:
        raise ValueError(f"salvage_to={saved!r} is not valid: it needs the suffix of a format, such as '.ffr'")
    is_folder = os.path.isdir(name)
    # An absolute path, so error messages are clear without knowing the working directory.
    name = os.path.abspath(name)
    paths = _core.recover(_core.journal_path(name, is_folder), None if keep is None else keep == "new")
    if paths is None:
        _refuse_other_names(name, is_folder)
    found = _temporaries(name, is_folder, remove=remove and saved is None)
    return Recovered(
        interrupted=paths is not None,
        kept=None if paths is None else keep,
        paths=tuple(paths or ()),
        temporaries=tuple(file.temporary for file in found),
        salvaged=() if saved is None else _salvage(found, saved),
    )


def _refuse_other_names(path: str, is_folder: bool) -> None:
    """Raises PublishError with the right name if a journal exists and `path` names the set in another way."""
    if is_folder and (journals := journals_in(path)):
        _core.refuse_journal(journals[0])
    refuse_unfinished_file(path)
    refuse_unfinished_file(re.sub("@[0-9]+$", "", path))
    refuse_unfinished_matches(path)


def _temporaries(path: str, is_folder: bool, *, remove: bool) -> list[Found]:
    found = search(path, None, remove=remove) if is_folder else []
    # Of a folder that is unpacked, the temporary folder is beside it.
    return found + find([re.sub("@[0-9]+$", "", path)], remove=remove)


def _salvage(found: list[Found], target: str) -> tuple[Salvaged, ...]:
    """Writes the records of stale files to new files."""
    sources: dict[tuple[str, int], Found] = {}
    # Samples that wait for their table are complete. The file that they are for has some of them, or none.
    for file in sorted(found, key=lambda file: (file.writer, file.number, file.is_samples)):
        if file.has_records:
            sources[file.writer, file.number] = file
    if not sources:
        return ()
    targets = [target] if len(sources) == 1 else shard_paths(target, len(sources))
    for name in targets:
        if os.path.lexists(name):
            text = f"{os.strerror(errno.EEXIST)}; choose another name for salvage_to="
            raise FileExistsError(errno.EEXIST, text, name)
    try:
        return tuple(salvage(file.temporary.path, name) for file, name in zip(sources.values(), targets, strict=True))
    except FormatError as error:
        if len(sources) > 1:
            add_note(error, "to save the records of the other temporary files, pass each of them to anyrecord.salvage")
        raise
