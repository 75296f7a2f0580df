"""`pack`: stores a folder as one file. FFRecord's own library can read the file."""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from typing import BinaryIO

from anyrecord import _core
from anyrecord._calls import Progress
from anyrecord._listing import MAX_DEPTH, MAX_NAME_BYTES, MAX_PATH_BYTES, Tree, dump, name_bytes
from anyrecord._locations import StrPath, scheme_of, shown, split_query, text_of
from anyrecord._stores import Storage
from anyrecord._targets import Destination, destination, refuse_unwritable
from anyrecord._writer import create

__all__ = ["pack", "planned"]


def pack(
    source: StrPath,
    target: StrPath | BinaryIO,
    *,
    overwrite: bool = False,
    durable: bool = True,
    progress: Callable[[int, int], object] | None = None,
    storage: Storage | None = None,
) -> None:
    """Stores a folder and everything in it as one FFRecord file. Read the file with `anyrecord.Folder`.

    >>> import anyrecord, os
    >>> os.makedirs("pets/dogs", exist_ok=True)
    >>> for path in ("pets/cat.txt", "pets/dogs/rex.txt"):
    ...     with open(path, "w") as file:
    ...         _ = file.write(f"this is {path}")
    >>> anyrecord.pack("pets", "pets.ffr", overwrite=True)
    >>> folder = anyrecord.Folder("pets.ffr")
    >>> list(folder), folder["dogs/rex.txt"]
    (['cat.txt', 'dogs/rex.txt'], b'this is pets/dogs/rex.txt')

    Each file is one record. Files are read into memory one at a time, so packing needs as much memory as the largest
    file. Hidden files and empty folders are included. Links are followed, and the file or folder that they point to is
    stored. Modes and times are not stored. Files are ordered by name, depth first, so the same folder gives the same
    bytes on every system.

    The target appears when it is complete. It can also be a file object with `write`, such as `sys.stdout.buffer`.
    These are errors, and nothing is published: a file that cannot be read, a broken link, a link to a folder that
    contains it, and anything that is not a file or a folder (a pipe, a socket, a device).

    - `overwrite=True` replaces an existing file when the new one is complete.
    - `durable=False` does not wait until the data is on disk.
    - `progress(done, total)` is called with bytes after each file, and once at the end.
    - `storage`: the `storage` of `create`, if the target is a URL.
    """
    output = target if hasattr(target, "write") else None
    to = Destination("") if output is not None else destination(target, storage)  # type: ignore[arg-type]
    name, files = to.name, _checked(text_of(source), None if output is not None else to)
    report = Progress(progress, sum(files.sizes))
    count = len(files.paths) + 1
    options = dict(to.storage) if to.is_url else None
    with create(
        name if output is None else output,
        format="ffrecord",
        overwrite=overwrite,
        durable=durable,
        num_records=count,
        storage=options,
    ) as out:
        out._advice = "wait for pack to return before the program ends"
        done = 0
        for path, size in zip(files.paths, files.sizes, strict=True):
            out.write(_contents(path))
            done += size
            report(done)
        out.write(dump(files.tree))
    if not files.paths:
        report(0)


def planned(
    source: StrPath, target: StrPath | None, *, overwrite: bool = False, storage: Storage | None = None
) -> _Files:
    """The files that `pack` would store. Raises what it would raise before it reads them; writes nothing.

    Without a target, only the folder is looked at.
    """
    to = None if target is None else destination(target, storage)
    if to is not None and not to.is_url and not overwrite and os.path.lexists(to.name):
        text = f"{os.strerror(errno.EEXIST)}; pass overwrite=True to replace it"
        raise FileExistsError(errno.EEXIST, text, to.name)
    return _checked(text_of(source), to)


def _checked(folder: str, to: Destination | None) -> _Files:
    """The files of a folder. Raises if it cannot be packed, or not to that target."""
    if scheme_of(folder) is not None:
        raise ValueError(f"{shown(folder)!r} is a URL, but only a local folder can be packed")
    if to is not None and not to.is_url:
        _refuse_inside(folder, to.name)
    if to is not None and _core.format_of_suffix(split_query(to.name)[0]) not in (None, "ffrecord"):
        raise ValueError(
            f"{shown(to.name)!r} has the suffix of another format, but a packed folder is FFRecord; use .ffr"
        )
    if to is not None and not to.is_url:
        refuse_unwritable(to.name, sharded=False)
    files = _Files()
    files.scan(folder, files.tree, (), 0)
    return files


def _refuse_inside(folder: str, target: str) -> None:
    outer = os.path.realpath(folder)
    inner = os.path.realpath(os.path.dirname(target) or os.curdir)
    try:
        inside = os.path.commonpath([outer, inner]) == outer
    except ValueError:  # on different drives
        return
    if inside:
        raise ValueError(f"the target {target!r} is inside {folder!r}, the folder to pack; pass a target outside of it")


class _Files:
    """The files in a folder, in the order of the records."""

    def __init__(self) -> None:
        self.tree: Tree = OrderedDict()
        self.paths: list[str] = []
        self.sizes: list[int] = []

    def scan(self, folder: str, tree: Tree, above: tuple[tuple[int, int], ...], path_bytes: int) -> None:
        about = os.stat(folder)
        here = (about.st_dev, about.st_ino)
        if here in above:
            raise OSError(errno.ELOOP, "a link points to a folder that contains it; remove the link to pack", folder)
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            size = path_bytes + name_bytes(name)
            about = os.stat(path)
            is_folder = stat.S_ISDIR(about.st_mode)
            if name_bytes(name) > MAX_NAME_BYTES or size > MAX_PATH_BYTES or len(above) + is_folder >= MAX_DEPTH:
                raise ValueError(
                    f"{path!r} cannot be packed: a packed folder holds names of at most {MAX_NAME_BYTES} bytes, "
                    f"paths of at most {MAX_PATH_BYTES}, and {MAX_DEPTH} levels"
                )
            if is_folder:
                inner: Tree = OrderedDict()
                self.scan(path, inner, (*above, here), size + 1)
                tree[name] = inner
            else:
                _refuse_special(about.st_mode, path)
                tree[name] = len(self.paths)
                self.paths.append(path)
                self.sizes.append(about.st_size)


def _refuse_special(mode: int, path: str) -> None:
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device"}
        kind = kinds.get(stat.S_IFMT(mode), "neither a file nor a folder")
        raise OSError(errno.EINVAL, f"cannot be packed: it is {kind}", path)


def _contents(path: str) -> bytes:
    """The contents of a file. It is read, not mapped: truncating a mapped file kills the process."""
    # Without O_NONBLOCK, opening would block forever if a pipe has replaced the file since it was listed.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, flags)) as file:
        _refuse_special(os.fstat(file.fileno()).st_mode, path)
        return file.readall()
