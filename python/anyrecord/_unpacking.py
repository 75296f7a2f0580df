"""Unpacking a folder so that nothing outside of its target is touched, and nothing at all if the listing is unsafe.

Everything is written to a new folder beside the target, which is then renamed, or whose files are then moved in. So
there are no links to follow while writing, and an error or a full disk leaves the target as it was.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from anyrecord._calls import Progress
from anyrecord._listing import Tree, walk
from anyrecord._records import Records
from anyrecord.errors import FormatError

__all__ = ["check_names", "write_tree"]

_BATCH_BYTES = 32 << 20
_BATCH_FILES = 1024

_DRIVE = re.compile(r"[A-Za-z]:")
_WINDOWS = re.compile(
    r'.*[\\:*?"<>|\x00-\x1f].*|.*[. ]|(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?', re.IGNORECASE | re.DOTALL
)
"""Names that mean something else on Windows: devices, streams, other folders, or names without their last dot."""


def write_tree(
    records: Records, tree: Tree, target: str, overwrite: bool, progress: Callable[[int, int], object] | None
) -> None:
    """Writes what `tree` lists to the folder `target`; see `Folder.unpack`."""
    check_names(tree, records.paths[-1], windows=os.name == "nt")
    target = os.path.realpath(target)  # a link to the target itself is the caller's choice
    merge = _check_target(tree, target, overwrite)
    staged = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{secrets.token_hex(8)}.tmp")
    os.mkdir(staged)
    try:
        _write(records, tree, staged, progress)
        if merge:
            _move(tree, staged, target)
        else:
            if os.path.isdir(target):
                os.rmdir(target)  # empty; not every system renames over it
            os.rename(staged, target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def check_names(tree: Tree, path: str, *, windows: bool) -> None:
    """Raises where a name is not safe to create, or two names could be one file."""
    for folder, names in _folders(tree):
        seen: dict[str, str] = {}
        for name in names:
            if _DRIVE.match(name):
                _refuse(path, "a name that is a drive on some systems", folder + name)
            if windows and _WINDOWS.fullmatch(name):
                _refuse(path, "a name that Windows does not have", folder + name)
            try:
                os.fsencode(name)
            except UnicodeEncodeError:
                _refuse(path, "a name that this system cannot encode", folder + name)
            other = seen.setdefault(unicodedata.normalize("NFC", name.casefold()), name)
            if other is not name:
                _refuse(path, "two names that are one on some systems", f"{folder}{other} and {folder}{name}")


def _folders(tree: Tree) -> Iterator[tuple[str, Tree]]:
    yield "", tree
    for path, node in walk(tree):
        if isinstance(node, dict):
            yield path + "/", node


def _refuse(path: str, what: str, found: str) -> NoReturn:
    raise FormatError(
        f"{path} is not safe to unpack: it has {what}, {found!a}; nothing was written; read the files one by one",
        path=path,
        expected="names that are safe and different on every system",
        found=ascii(found),
    )


def _check_target(tree: Tree, target: str, overwrite: bool) -> bool:
    """Whether files must be moved into a target that has some already."""
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(errno.ENOTDIR, "the target is there and is not a folder", target)
    if not os.listdir(target):
        return False
    if not overwrite:
        text = f"{os.strerror(errno.EEXIST)} and is not empty; pass overwrite=True to replace files in it"
        raise FileExistsError(errno.EEXIST, text, target)
    for path, node in walk(tree):
        place = os.path.join(target, *path.split("/"))
        found = _kind(place)
        if isinstance(node, dict) and found not in ("nothing", "a folder"):
            raise FileExistsError(errno.EEXIST, f"a folder is to go where {found} is; move that away", place)
        if isinstance(node, int) and found == "a folder":
            raise FileExistsError(errno.EEXIST, "a file is to go where a folder is; move that away", place)
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
            os.mkdir(place)
        else:
            files.append((place, node))
    done, tell = 0, Progress(progress, sum(sizes[record] for _, record in files))
    for batch in _batches(files, sizes):
        for (place, _), contents in zip(batch, records.__getitems__([record for _, record in batch]), strict=True):
            with open(place, "xb", buffering=0) as file:
                _write_all(file.fileno(), contents)
            done += len(contents)
            tell(done)
    if not files:
        tell(0)


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
            os.replace(source, place)  # in place of a link, too, not through it
            continue
        if _kind(place) == "nothing":
            os.mkdir(place)
        elif _kind(place) != "a folder":  # it was one when the target was checked
            raise FileExistsError(errno.EEXIST, "something else took the place of a folder", place)
        _move(node, source, place)
