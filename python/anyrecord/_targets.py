"""Where files can be written. What can be known before the first record is refused here, not after the last."""

from __future__ import annotations

import errno
import os
import stat

from anyrecord import _core
from anyrecord._locations import StrPath, refuse_mangled_url, refuse_url
from anyrecord._paths import set_name, shard_paths

__all__ = ["is_folder_name", "refuse_folder_name", "refuse_interrupted", "refuse_unwritable", "target_path"]


_NO_SHARD = ".{name:.40}.xxxxxxxx-999999.old"
"""As long as the hidden name that an old shard gets, for as many shards as anybody writes."""


def target_path(path: StrPath) -> str:
    """The local path that a caller names. Refuses URLs."""
    if isinstance(path, os.PathLike):
        refuse_mangled_url(path)
    name = os.fspath(path)
    if not isinstance(name, str):
        raise TypeError("a path is a str or a PathLike of one, not bytes")
    refuse_url(name)
    return name


def is_folder_name(path: str) -> bool:
    """Whether a path ends in a slash, and so can only name a folder."""
    return path.endswith(("/", os.sep))


def refuse_folder_name(path: str) -> None:
    """Raises IsADirectoryError if a path can only name a folder."""
    if is_folder_name(path):
        raise IsADirectoryError(errno.EISDIR, "a name that ends in a slash is a folder; pass the name of a file", path)


def refuse_unwritable(path: str, *, sharded: bool) -> None:
    """Raises the error that writing a file, or shards of it, would end with."""
    refuse_folder_name(path)
    _refuse_long(path, sharded)
    if not sharded:
        mode = _mode(path)
        if mode is not None and stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if mode is not None and not stat.S_ISREG(mode):
            return  # a pipe or a device is written to as it is
    folder = os.path.dirname(path if sharded else os.path.realpath(path)) or os.curdir
    if not os.path.isdir(folder):
        number = errno.ENOTDIR if os.path.lexists(folder) else errno.ENOENT
        raise OSError(number, f"{os.strerror(number)}: the folder {folder!r}", path)
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, f"{os.strerror(errno.EACCES)}: the folder {folder!r}", path)


def _refuse_long(path: str, sharded: bool) -> None:
    """Raises what the system says to the names that will be needed; that a file is not there is fine."""
    folder, name = os.path.split(path)
    names = [path]
    if sharded:
        names += [shard_paths(path, 1)[0], os.path.join(folder, _NO_SHARD.format(name=name))]
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
    """Raises PublishError if publishing the file, or shards of it, was interrupted. A running process does no harm."""
    folder, name = os.path.split(path)
    if sharded and os.path.lexists(own := _core.journal_path(path, False)):
        _core.refuse_interrupted(own)
    if os.path.lexists(of_folder := _core.journal_path(folder, True)):
        names = _core.journal_names(of_folder) or []
        if any((set_name(found) if sharded else found) == name for found in names):
            _core.refuse_interrupted(of_folder)
