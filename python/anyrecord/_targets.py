"""Checks of the paths to write to. They fail before the first record is written, not after the last one."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from anyrecord import _core
from anyrecord._locations import StrPath, is_url, refuse_url, shown, text_of
from anyrecord._shard_names import set_name, shard_paths
from anyrecord._stores import Pairs, Storage, resolve

__all__ = [
    "Destination",
    "destination",
    "is_folder_name",
    "missing_folder",
    "refuse_folder_name",
    "refuse_interrupted",
    "refuse_unwritable",
    "target_path",
]


class Destination(NamedTuple):
    """Where to write."""

    name: str
    """A local path, or a URL."""
    storage: Pairs = ()
    """The options of the store of a URL."""

    @property
    def is_url(self) -> bool:
        return is_url(self.name)


def destination(path: StrPath, storage: Storage | None = None) -> Destination:
    """What a user passed to write to. Raises ValueError for a scheme or a store that cannot be written to."""
    stores = resolve(storage)
    if stores.store is not None:
        raise ValueError(
            f"storage= cannot be a {type(storage).__name__} to write to: open the file with it and pass the file "
            "object, or pass a URL and a dict of options"
        )
    name = text_of(path) if stores.root is None else stores.root.path(path)
    if not is_url(name):
        return Destination(name)
    _core.check_url(name)  # raises if it names no bucket
    return Destination(name, stores.options)


_LONGEST_HIDDEN_NAME = ".{name:.40}.samples.tfrecord.xxxxxxxxxxxxxxxx_xxxxxxxxxxxxxxxxxxxx_999999s_nolock.tmp"
"""A name as long as the hidden names of shards, for up to a million shards. No such file exists."""


def target_path(path: StrPath) -> str:
    """Returns the local path that a user passed, where only that is possible. Raises ValueError for other URLs."""
    text = os.fspath(path)
    if isinstance(text, str):
        refuse_url(text)
    return text_of(path)


def is_folder_name(path: str) -> bool:
    """Whether a path ends in a slash, and so can only name a folder."""
    return path.endswith(("/", os.sep))


def refuse_folder_name(path: str) -> None:
    """Raises IsADirectoryError if a path can only name a folder."""
    if is_folder_name(path):
        text = "a path that ends in a slash is a folder; pass the path of a file"
        raise IsADirectoryError(errno.EISDIR, text, shown(path))


def refuse_unwritable(path: str, *, sharded: bool) -> None:
    """Raises now the error that writing the file, or its shards, would raise at the end."""
    refuse_folder_name(path)
    _refuse_long(path, sharded)
    if not sharded:
        mode = _mode(path)
        if mode is not None and stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if mode is not None and not stat.S_ISREG(mode):
            return  # a pipe or a device is written to directly
    folder = _folder_of(path, sharded)
    if error := missing_folder(path, sharded=sharded):
        raise error
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, f"{os.strerror(errno.EACCES)}: the folder {folder!r}", path)


def missing_folder(path: str, *, sharded: bool) -> OSError | None:
    """The error that says which folder is missing, if a file, or its shards, cannot be written for that reason."""
    folder = _folder_of(path, sharded)
    if os.path.isdir(folder):
        return None
    if os.path.lexists(folder):
        return NotADirectoryError(errno.ENOTDIR, f"{os.strerror(errno.ENOTDIR)}: the folder {folder!r}", path)
    text = f"{os.strerror(errno.ENOENT)}: the folder {folder!r}; make it first"
    return FileNotFoundError(errno.ENOENT, text, path)


def _folder_of(path: str, sharded: bool) -> str:
    return os.path.dirname(path if sharded else os.path.realpath(path)) or os.curdir


def _refuse_long(path: str, sharded: bool) -> None:
    """Raises the system's error if a name that will be needed is not possible, for example too long."""
    folder, name = os.path.split(path)
    names = [path]
    if sharded:
        names += [shard_paths(path, 1)[0], os.path.join(folder, _LONGEST_HIDDEN_NAME.format(name=name))]
    for needed in names:
        try:
            os.lstat(needed)
        except FileNotFoundError:
            continue


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except OSError:
        return None


def refuse_interrupted(path: str, *, sharded: bool) -> None:
    """Raises PublishError if publishing a local file, or its shards, was interrupted. One that runs is no error."""
    folder, name = os.path.split(path)
    if sharded and os.path.lexists(own := _core.journal_path(path, False)):
        _core.refuse_interrupted(own)
    if os.path.lexists(of_folder := _core.journal_path(folder, True)):
        names = _core.journal_names(of_folder) or []
        if any((set_name(found) if sharded else found) == name for found in names):
            _core.refuse_interrupted(of_folder)
