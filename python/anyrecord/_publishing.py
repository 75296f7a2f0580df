"""What readers see of a set of files that is being published, or whose publishing was interrupted.

While a set is published there is a journal beside it, `.train.ffr.publish` for the shards of `train.ffr`, and
`.anyrecord-folder.publish` for files that are published together into a folder. Some files of the set are hidden then,
so whoever looks for them is told about the journal instead of what is missing.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Protocol, TypeVar

from anyrecord import _core
from anyrecord.errors import PublishError

__all__ = [
    "ATTEMPTS",
    "Unchanged",
    "journals_in",
    "refuse_unfinished",
    "refuse_unfinished_file",
    "refuse_unfinished_matches",
    "unmixed",
]

T = TypeVar("T")

_SUFFIX = ".publish"
ATTEMPTS = 8
"""How often to look when a set is replaced meanwhile. That takes a moment, so a second look nearly always does."""


def journals_in(folder: str) -> list[str]:
    """The journals in a folder."""
    try:
        entries = os.scandir(folder or os.curdir)
    except OSError:  # what is wrong with the folder is for others to say
        return []
    with entries:
        names = [entry.name for entry in entries if entry.name.endswith(_SUFFIX) and entry.name.startswith(".")]
    return [os.path.join(folder, name) for name in sorted(names)]


def refuse_unfinished(folder: str, concerns: Callable[[str], object] | None = None) -> None:
    """Raises PublishError if a journal in the folder names a file for which `concerns` is true; None: any file."""
    _refuse_journals(journals_in(folder), concerns)


def refuse_unfinished_matches(pattern: str) -> None:
    """Raises PublishError if a journal names a file that the glob would match."""
    folder, name = os.path.split(pattern)
    anywhere = os.path.join(folder, "**") if name == "**" else folder
    journals = glob.glob(os.path.join(anywhere, f".*{_SUFFIX}"), recursive=True)
    _refuse_journals(sorted(journals), lambda found: fnmatch.fnmatch(found, name))


def refuse_unfinished_file(path: str) -> None:
    """Raises PublishError if a journal names this file, or shards of it."""
    if os.path.lexists(journal := _core.journal_path(path, False)):
        _core.refuse_journal(journal)
    folder, name = os.path.split(path)
    refuse_unfinished(folder, lambda found: found == name)


def _refuse_journals(journals: Iterable[str], concerns: Callable[[str], object] | None) -> None:
    for journal in journals:
        try:
            names = _core.journal_names(journal)
        except OSError:  # nobody may read it while it is locked, on some systems
            _core.refuse_journal(journal)
        if names is not None and (concerns is None or any(concerns(name) for name in names)):
            _core.refuse_journal(journal)


class _HasPath(Protocol):
    @property
    def path(self) -> str: ...


F = TypeVar("F", bound=_HasPath)


class Unchanged:
    """What files were when they were first looked at. As a context manager it raises PublishError if they are replaced.

    A set that is replaced while its files are read one after the other would be read as a mixture.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        # One file alone cannot be of two sets.
        self._paths = paths if len(paths) > 1 else ()
        self._before = self._now()

    def _now(self) -> list[tuple[int, ...]]:
        """Which files have the names now; a shorter list if some are not there."""
        try:
            found = [os.stat(path) for path in self._paths]
        except FileNotFoundError:
            return []
        return [(about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns) for about in found]

    def holds(self) -> bool:
        """Whether all of them are still the same files."""
        return len(self._before) == len(self._paths) and self._now() == self._before

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if (error is None or isinstance(error, FileNotFoundError)) and not self.holds():
            raise PublishError(
                f"{len(self._paths)} files from {self._paths[0]} on were replaced while they were read; "
                "read them again",
                path=self._paths[0],
            ) from error


def unmixed(find: Callable[[], list[F]], act: Callable[[list[F]], T]) -> T:
    """What `act` makes of the files that `find` finds, all of them from before or all from after a publish."""
    for _ in range(ATTEMPTS - 1):
        files = find()
        unchanged = Unchanged([file.path for file in files])
        try:
            result = act(files)
        except FileNotFoundError:  # found a moment ago: if it was replaced, there is another one now
            continue
        if unchanged.holds():
            return result
    files = find()
    try:
        with Unchanged([file.path for file in files]):
            return act(files)
    except FileNotFoundError as error:
        if error.filename is None or os.path.lexists(error.filename):  # a link that leads nowhere
            raise
        raise PublishError(
            f"{error.filename} was there a moment ago: its set is being replaced; read it again", path=error.filename
        ) from error
