"""`recover`: puts in order what killed writers left: an interrupted publish, and temporary files."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from anyrecord import _core
from anyrecord._calls import Progress, add_note
from anyrecord._copy import left_files, left_objects, remove_left_objects
from anyrecord._dataclasses import dataclass
from anyrecord._locations import StrPath, is_web, shown
from anyrecord._object_sets import journal_url, refuse_interrupted_objects
from anyrecord._publishing import journals_in, refuse_unfinished_file, refuse_unfinished_matches
from anyrecord._salvage import Salvaged, salvage
from anyrecord._shard_names import shard_paths
from anyrecord._stores import Storage
from anyrecord._targets import Destination, destination, is_folder_name, target_path
from anyrecord._temporaries import Found, Temporary, find, search
from anyrecord.errors import FormatError

__all__ = ["Recovered", "left_by_writers", "recover"]


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
    progress: Callable[[int, int], object] | None = None,
    storage: Storage | None = None,
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
    `progress(done, total)` is called from time to time while records are saved. It counts bytes of temporary files.

    **Interrupted publishing.** If a process was killed while the files of a set got their names, `open` and all other
    readers raise `PublishError`, which names this function. `keep="new"` makes the new set visible and deletes the old
    one. `keep="old"` does the reverse. In both cases the set is complete afterwards. You can call this at any time, and
    again if it was itself interrupted. It raises `PublishError` and changes nothing

    - while a running process publishes the set;
    - if publishing was interrupted and you did not pass `keep`;
    - if files of the set to keep are missing.

    **Objects.** `path` can be a URL, with `storage` as for `create`. A folder is a URL that ends in a slash. A store
    has no locks, so the error without `keep` says which process on which machine publishes the set, and since when.
    `keep` is your word that this process is gone. `keep="old"` is possible as long as no old object was replaced. A
    killed writer leaves no temporary files in a store, but parts that nobody sees. A lifecycle rule of the bucket
    removes them. `keep="old"` also removes what an unfinished `copy` left to continue with.
    """
    to = destination(path, storage)
    name = to.name
    if keep not in (None, "old", "new"):
        raise ValueError(f"keep={keep!r} is not valid: it must be 'old' or 'new'")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress needs a function, not {type(progress).__name__}")
    saved = None if salvage_to is None else target_path(salvage_to)
    if saved is not None and _core.format_of_suffix(saved) is None:
        raise ValueError(f"salvage_to={saved!r} is not valid: it needs the suffix of a format, such as '.ffr'")
    if to.is_url:
        if saved is not None:
            raise ValueError("salvage_to= is for local files: a store keeps no unfinished file that could be read")
        return _recover_objects(to, keep)
    is_folder = os.path.isdir(name)
    # An absolute path, so error messages are clear without knowing the working directory.
    name = os.path.abspath(name)
    paths = _core.recover(_core.journal_path(name, is_folder), None if keep is None else keep == "new")
    if paths is None:
        _refuse_other_names(name, is_folder)
    found = _temporaries(name, is_folder, remove=remove and saved is None)
    alive = [file.temporary.path for file in found if file.temporary.state == "alive"]
    copies = _copies(name, is_folder, alive, remove=remove and saved is None)
    return Recovered(
        interrupted=paths is not None,
        kept=None if paths is None else keep,
        paths=tuple(paths or ()),
        temporaries=(*(file.temporary for file in found), *copies),
        salvaged=() if saved is None else _salvage(found, saved, progress),
    )


def left_by_writers(path: StrPath) -> list[Temporary]:
    """The temporary files of writers of a local path. Nothing is changed, and an interrupted publish is no error."""
    to = destination(path)
    if to.is_url:
        return []
    name, is_folder = os.path.abspath(to.name), os.path.isdir(to.name)
    found = _temporaries(name, is_folder, remove=False)
    alive = [file.temporary.path for file in found if file.temporary.state == "alive"]
    return [*(file.temporary for file in found), *_copies(name, is_folder, alive, remove=False)]


def _recover_objects(to: Destination, keep: Literal["old", "new"] | None) -> Recovered:
    name, storage = re.sub("@[0-9]+$", "", to.name), list(to.storage)
    is_folder = is_folder_name(name)
    urls = None
    if not is_web(name):  # which has no journals
        urls = _core.recover_objects(
            journal_url(name, is_folder=is_folder), None if keep is None else keep == "new", storage
        )
    if urls is None and not is_folder and not is_web(name):
        # The object, or the set, may be one of those that appear together in a folder. The error names the folder.
        refuse_interrupted_objects(Destination(name, to.storage), sharded=False)
        refuse_interrupted_objects(Destination(name, to.storage), sharded=True)
    kept = None if urls is None else keep
    return Recovered(
        interrupted=urls is not None,
        kept=kept,
        paths=tuple(shown(url) for url in urls or ()),
        temporaries=() if is_web(name) else _object_copies(Destination(name, to.storage), is_folder, keep),
    )


def _object_copies(to: Destination, is_folder: bool, keep: Literal["old", "new"] | None) -> tuple[Temporary, ...]:
    """What unfinished copies left. It is removed with `keep="old"`: only then the user says that they do not run."""
    left = left_objects(to, is_folder=is_folder)
    if keep == "old":
        remove_left_objects([url for url, _ in left], list(to.storage))
    state: Literal["removed", "unknown"] = "removed" if keep == "old" else "unknown"
    why = None if keep == "old" else "a copy that runs, or that the same call continues; keep='old' removes it"
    return tuple(Temporary(path=shown(url), bytes=size, state=state, why=why) for url, size in left)


def _copies(path: str, is_folder: bool, alive: list[str], *, remove: bool) -> list[Temporary]:
    """What unfinished copies left. A copy that runs keeps its own, which are other names of its files `alive`."""
    known = set()
    for file in alive:
        with suppress(OSError):
            known.add(_identity(os.stat(file)))
    found = []
    for left in left_files(path, is_folder=is_folder):
        with suppress(FileNotFoundError):
            about = os.stat(left)
            if _identity(about) in known:
                found.append(Temporary(path=left, bytes=about.st_size, state="alive"))
                continue
            if remove:
                os.unlink(left)
            found.append(Temporary(path=left, bytes=about.st_size, state="removed" if remove else "stale"))
    return found


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


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


def _salvage(found: list[Found], target: str, progress: Callable[[int, int], object] | None) -> tuple[Salvaged, ...]:
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
    saved: list[Salvaged] = []
    before, total = 0, sum(file.temporary.bytes for file in sources.values())
    try:
        for file, name in zip(sources.values(), targets, strict=True):
            step = None if progress is None else Progress(progress, total, before)
            saved.append(salvage(file.temporary.path, name, progress=step))
            before += file.temporary.bytes
        return tuple(saved)
    except FormatError as error:
        if len(sources) > 1:
            add_note(error, "to save the records of the other temporary files, pass each of them to anyrecord.salvage")
        raise
