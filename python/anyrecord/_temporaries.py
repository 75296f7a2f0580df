"""Temporary files of writers that were killed, and what the next writer of the same name does about them."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterable
from typing import Literal, cast

from anyrecord import _core
from anyrecord._dataclasses import dataclass

__all__ = ["Found", "Leftovers", "Temporary", "find", "remove_silently", "search"]

_LOOK_EVERY = 100
"""A folder of so many names is listed by every second writer, a folder of twice as many by every third, and so on."""
_MOST_FOLDERS = 1000


@dataclass(frozen=True, slots=True)
class Temporary:
    """A temporary file that `recover` found."""

    path: str
    """Where it is."""
    bytes: int
    """Its size. 0 for a folder that `unpack` left."""
    state: Literal["removed", "stale", "alive", "publishing", "unknown"]
    """`"removed"`: its writer was dead, and `recover` removed the file. `"stale"`: its writer is dead, and the file is
    still there. `"alive"`: a process is writing it. `"publishing"`: a journal names it, see `recover`. `"unknown"`: the
    writer may be alive, so the file is left alone."""
    why: str | None = None
    """Why the state is unknown."""


@dataclass(frozen=True, slots=True)
class Found:
    """A temporary file, and what only this package needs to know about it."""

    temporary: Temporary
    target: str
    """The name of its target. Long names are shortened."""
    writer: str
    number: int
    """Which file of its writer it is."""
    is_samples: bool
    """Whether it holds samples that wait for the table of the file with the same number, as TFRecord."""

    @property
    def has_records(self) -> bool:
        """Whether it can hold records that are nowhere else."""
        is_ours = self.target.startswith(".") and self.target.endswith((".index", ".publish"))
        return self.temporary.state == "stale" and self.temporary.bytes > 0 and not is_ours


def search(folder: str, targets: list[str] | None, *, remove: bool = False) -> list[Found]:
    """The temporary files of targets (file names) in a folder, or of all targets. None of a folder that is missing."""
    try:
        rows, _ = (
            _core.remove_temporaries(folder or os.curdir, targets, None)
            if remove
            else _core.find_temporaries(folder or os.curdir, targets)
        )
    except (FileNotFoundError, NotADirectoryError):
        return []
    return _found(rows)


def _found(rows: Iterable[_core._Temporary]) -> list[Found]:
    found = []
    for path, target, size, writer, number, is_samples, state, why in rows:
        states = cast(Literal["removed", "stale", "alive", "publishing", "unknown"], state)
        found.append(Found(Temporary(path, size, states, why), target, writer, number, is_samples))
    return found


def names_of(path: str) -> tuple[str, list[str]]:
    """The folder of the temporary files of a target, and the file names that they can be for.

    No names for a pipe or a device, which is written to directly.
    """
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            path = os.path.realpath(path)
            mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            return "", []
    except OSError:  # there is nothing yet
        pass
    folder, name = os.path.split(path)
    return folder, [name, f".{name}.index", f".{name}.publish"]


def find(paths: Iterable[str], *, remove: bool = False) -> list[Found]:
    """The temporary files of these targets. Each folder is listed once."""
    return [found for folder, names in _by_folder(paths).items() for found in search(folder, names, remove=remove)]


def _by_folder(paths: Iterable[str]) -> dict[str, list[str]]:
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, names = names_of(path)
        if names:
            folders.setdefault(folder, []).extend(names)
    return folders


def remove_silently(paths: Iterable[str], *, folders: bool = False) -> None:
    """Removes files, or folders, that killed writers of these targets left, where nothing is lost by that."""
    for folder, names in _by_folder(paths).items():
        try:
            rows, _ = _core.find_temporaries(folder or os.curdir, names)
            chosen = {row[0] for row in rows if os.path.isdir(row[0]) == folders}
            if chosen:
                _core.remove_temporaries(folder or os.curdir, names, chosen)
        except OSError:  # they are hidden, and do no harm
            continue


class Leftovers:
    """What killed writers of some targets left. A new writer removes it when its own files are published.

    It is not removed earlier: if the new writer is killed too, the records in it may be the only ones there are.
    """

    _looked: dict[str, tuple[int, int]] = {}  # noqa: RUF012  # shared by all writers of the process
    """For each folder: how many names it had, and how many writers did not list it since."""

    def __init__(self, targets: Iterable[str], sources: Iterable[str] = (), stacklevel: int = 3) -> None:
        """Looks for them, and issues one warning if there are records among them.

        A source is never removed, even if a killed writer of the same target left it.
        """
        kept = {os.path.realpath(source) for source in sources}
        self._chosen: dict[str, tuple[list[str], set[str]]] = {}
        with_records: list[str] = []
        targets = list(targets)
        for folder, names in _by_folder(targets).items():
            stale = [
                found
                for found in self._look(folder, names)
                if found.temporary.state == "stale" and os.path.realpath(found.temporary.path) not in kept
            ]
            if stale:
                self._chosen[folder] = (names, {found.temporary.path for found in stale})
                with_records += [found.temporary.path for found in stale if found.has_records]
        if with_records:
            more = f" and {len(with_records) - 1} more" if len(with_records) > 1 else ""
            first = targets[0]
            warnings.warn(
                f"a writer of {first} was killed and left {with_records[0]}{more}, which the new writer removes when "
                f"its own file is complete. To save the records first, call anyrecord.recover({first!r}, "
                "salvage_to=...)",
                RuntimeWarning,
                stacklevel=stacklevel,
            )

    def _look(self, folder: str, names: list[str]) -> list[Found]:
        # Listing takes time in a large folder. So a process that writes many files there does not list it for each.
        size, since = self._looked.get(folder, (0, 0))
        if since < size // _LOOK_EVERY:
            self._looked[folder] = (size, since + 1)
            return []
        try:
            rows, size = _core.find_temporaries(folder or os.curdir, names)
        except OSError:  # writing reports what is wrong with the folder
            return []
        if len(self._looked) >= _MOST_FOLDERS:
            self._looked.clear()
        self._looked[folder] = (size, 0)
        return _found(rows)

    def remove(self) -> None:
        """Removes them, if their writers are still dead. A file that cannot be removed is told by a warning."""
        for folder, (names, paths) in self._chosen.items():
            try:
                _core.remove_temporaries(folder or os.curdir, names, paths)
            except OSError as error:
                text = f"everything is published, but a file that a killed writer left could not be removed: {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=3)
        self._chosen = {}
