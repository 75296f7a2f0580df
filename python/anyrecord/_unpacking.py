"""Unpacks a folder. It changes nothing outside of the target, and writes nothing at all if the listing is unsafe.

All files are written to a new folder next to the target. Then the new folder is renamed, or its files are moved into
the target. So there are no links to follow while writing, and an error or a full disk leaves the target unchanged.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from anyrecord import _core
from anyrecord._calls import Progress
from anyrecord._listing import Tree, walk
from anyrecord._records import Records
from anyrecord._temporaries import remove_silently
from anyrecord.errors import FormatError

__all__ = ["check_names", "check_tree", "write_tree"]

_BATCH_BYTES = 32 << 20
_BATCH_FILES = 1024

_DRIVE = re.compile(r"[A-Za-z]:")
_WINDOWS = re.compile(
    r'.*[\\:*?"<>|\x00-\x1f].*|.*[. ]|(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?', re.IGNORECASE | re.DOTALL
)
"""Names with another meaning on Windows: devices, streams, other folders, and names whose last dot is dropped."""


def write_tree(
    records: Records, tree: Tree, target: str, overwrite: bool, progress: Callable[[int, int], object] | None
) -> None:
    """Writes the files of `tree` to the folder `target`; see `Folder.unpack`."""
    import shutil  # imported here because only this needs it

    target, merge = check_tree(records, tree, target, overwrite)
    staged, _lock = _core.create_temporary_folder(target)  # the lock shows other processes that this one is alive
    try:
        _write(records, tree, staged, progress)
        if merge:
            _move(tree, staged, target)
        else:
            if os.path.isdir(target):
                _uninterrupted(os.rmdir, target)  # it is empty; not every system can rename over an empty folder
            _uninterrupted(os.rename, staged, target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    # What a killed process left is still in the packed file.
    remove_silently([target], folders=True)


def check_tree(records: Records, tree: Tree, target: str, overwrite: bool) -> tuple[str, bool]:
    """Raises if the tree cannot be written. Returns the path of the target, and whether it has files already."""
    check_names(tree, records.paths[-1], windows=os.name == "nt")
    target = os.path.realpath(target)  # the target itself can be a link: the user has chosen it
    return target, _check_target(tree, target, overwrite)


def _uninterrupted(call: Callable[..., None], *paths: str) -> None:
    """Repeats a call that a signal interrupted. Python does not do so for these calls."""
    while True:
        try:
            return call(*paths)
        except InterruptedError:
            continue


def check_names(tree: Tree, path: str, *, windows: bool) -> None:
    """Raises FormatError if a name is not safe to create, or if two names can be the same file."""
    for folder, names in _folders(tree):
        seen: dict[str, str] = {}
        for name in names:
            if _DRIVE.match(name):
                _refuse(path, "a name that is a drive on some systems", folder + name)
            if windows and _WINDOWS.fullmatch(name):
                _refuse(path, "a name that is not possible on Windows", folder + name)
            try:
                os.fsencode(name)
            except UnicodeEncodeError:
                _refuse(path, "a name that this system cannot encode", folder + name)
            other = seen.setdefault(unicodedata.normalize("NFC", name.casefold()), name)
            if other is not name:
                _refuse(path, "two names that are the same on some systems", f"{folder}{other} and {folder}{name}")


def _folders(tree: Tree) -> Iterator[tuple[str, Tree]]:
    yield "", tree
    for path, node in walk(tree):
        if isinstance(node, dict):
            yield path + "/", node


def _refuse(path: str, what: str, found: str) -> NoReturn:
    raise FormatError(
        f"{path} is not safe to unpack: it has {what}, {found!a}; nothing was written. "
        "Read the files one by one with anyrecord.Folder instead",
        path=path,
        expected="names that are safe and different on every system",
        found=ascii(found),
    )


def _check_target(tree: Tree, target: str, overwrite: bool) -> bool:
    """Whether the target has files already, so the new files must be moved into it."""
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(errno.ENOTDIR, "the target exists and is not a folder; pass another path", target)
    if not os.listdir(target):
        return False
    if not overwrite:
        text = f"{os.strerror(errno.EEXIST)} and is not empty; pass overwrite=True to replace files in it"
        raise FileExistsError(errno.EEXIST, text, target)
    for path, node in walk(tree):
        place = os.path.join(target, *path.split("/"))
        found = _kind(place)
        if isinstance(node, dict) and found not in ("nothing", "a folder"):
            raise FileExistsError(errno.EEXIST, f"cannot create a folder: {found} has its name; move it away", place)
        if isinstance(node, int) and found == "a folder":
            raise FileExistsError(errno.EEXIST, "cannot create a file: a folder has its name; move it away", place)
    return True


def _kind(path: str) -> str:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    if stat.S_ISDIR(mode) and not getattr(os.path, "isjunction", _never)(path):
        return "a folder"
    return "a file" if stat.S_ISREG(mode) else "a link or something special"


def _never(_path: str) -> bool:
    return False


def _write(records: Records, tree: Tree, staged: str, progress: Callable[[int, int], object] | None) -> None:
    sizes: Sequence[int] = records.sizes() or []
    files: list[tuple[str, int]] = []
    for path, node in walk(tree):
        place = os.path.join(staged, *path.split("/"))
        if isinstance(node, dict):
            _uninterrupted(os.mkdir, place)
        else:
            files.append((place, node))
    done, report = 0, Progress(progress, sum(sizes[record] for _, record in files))
    for batch in _batches(files, sizes):
        for (place, _), contents in zip(batch, records.__getitems__([record for _, record in batch]), strict=True):
            with open(place, "xb", buffering=0) as file:
                _write_all(file.fileno(), contents)
            done += len(contents)
            report(done)
    if not files:
        report(0)


def _write_all(descriptor: int, contents: bytes) -> None:
    rest = memoryview(contents)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _batches(files: list[tuple[str, int]], sizes: Sequence[int]) -> Iterator[list[tuple[str, int]]]:
    batch: list[tuple[str, int]] = []
    size = 0
    for file in files:
        if batch and (len(batch) == _BATCH_FILES or size + sizes[file[1]] > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += sizes[file[1]]
    if batch:
        yield batch


def _move(tree: Tree, staged: str, target: str) -> None:
    for name, node in tree.items():
        source, place = os.path.join(staged, name), os.path.join(target, name)
        if isinstance(node, int):
            _uninterrupted(os.replace, source, place)  # replaces a link; does not follow it
            continue
        if _kind(place) == "nothing":
            _uninterrupted(os.mkdir, place)
        elif _kind(place) != "a folder":  # it was a folder when the target was checked
            raise FileExistsError(errno.EEXIST, "this was a folder and was replaced while unpacking", place)
        _move(node, source, place)
