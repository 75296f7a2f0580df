"""How readers notice that a set of files is being published, or that publishing was interrupted.

While a set is published there is a journal in its folder: `.train.ffr.publish` for the shards of `train.ffr`, and
`.anyrecord-folder.publish` for files that are published together into a folder. Some files of the set are hidden during
that time. A reader that looks for them gets an error about the journal, not about a missing file.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Callable, Iterable
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
    "retry_until_consistent",
]

T = TypeVar("T")

_SUFFIX = ".publish"
ATTEMPTS = 8
"""How often to try if a set is replaced while it is opened. Replacing is fast: the second attempt mostly works."""


def journals_in(folder: str) -> list[str]:
    """The journals in a folder."""
    try:
        entries = os.scandir(folder or os.curdir)
    except OSError:  # opening the files reports what is wrong with the folder
        return []
    with entries:
        names = [entry.name for entry in entries if entry.name.endswith(_SUFFIX) and entry.name.startswith(".")]
    return [os.path.join(folder, name) for name in sorted(names)]


def refuse_unfinished(folder: str, concerns: Callable[[str], object] | None = None) -> None:
    """Raises PublishError if a journal in the folder names a file for which `concerns` is true. None means any file."""
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
        except OSError:  # on some systems, a locked file cannot be read
            _core.refuse_journal(journal)
        if names is not None and (concerns is None or any(concerns(name) for name in names)):
            _core.refuse_journal(journal)


class _HasPath(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def is_local(self) -> bool: ...


F = TypeVar("F", bound=_HasPath)


class Unchanged:
    """Remembers the identity of files. As a context manager, it raises PublishError if the files are replaced.

    If a set is replaced while its files are read one after the other, the reader would get files of both sets.
    """

    def __init__(self, files: Iterable[_HasPath]) -> None:
        # An object in a store that changes while it is read is an error anyway.
        paths = list(dict.fromkeys(file.path for file in files if file.is_local))
        # A single file cannot be a mixture of two sets.
        self._paths = paths if len(paths) > 1 else []
        self._before = self._now()

    def _now(self) -> list[tuple[int, ...]]:
        """The identity of the files that have these names now. An empty list if one is missing."""
        try:
            found = [os.stat(path) for path in self._paths]
        except FileNotFoundError:
            return []
        return [(about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns) for about in found]

    def holds(self) -> bool:
        """Whether all paths still name the same files."""
        return len(self._before) == len(self._paths) and self._now() == self._before

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if (error is None or isinstance(error, FileNotFoundError)) and not self.holds():
            raise PublishError(
                f"a set of {len(self._paths)} files, beginning with {self._paths[0]}, was replaced while it was read; "
                "read it again",
                path=self._paths[0],
            ) from error


def retry_until_consistent(find: Callable[[], list[F]], act: Callable[[list[F]], T]) -> T:
    """Calls `act` with the files that `find` returns. All of them are from before a publish, or all from after it."""
    for _ in range(ATTEMPTS - 1):
        files = find()
        if not any(file.is_local for file in files):
            return act(files)
        unchanged = Unchanged(files)
        try:
            result = act(files)
        except FileNotFoundError:  # `find` saw the file; if its set was replaced, the next attempt finds the new one
            continue
        if unchanged.holds():
            return result
    files = find()
    try:
        with Unchanged(files):
            return act(files)
    except FileNotFoundError as error:
        if error.filename is None or os.path.lexists(error.filename):  # a broken link
            raise
        raise PublishError(
            f"{error.filename} disappeared while it was opened: its set is being replaced; open it again",
            path=error.filename,
        ) from error
