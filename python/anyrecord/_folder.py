"""`Folder`: a packed folder, read without unpacking it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from errno import EISDIR, ENOENT, ENOTDIR
from fnmatch import translate
from re import Pattern
from re import compile as compile_pattern
from types import MappingProxyType
from typing import Any, BinaryIO, Self, SupportsIndex, TypeAlias

from anyrecord import _core
from anyrecord._listing import Listing, Tree, walk
from anyrecord._locations import StrPath
from anyrecord._options import Checksums
from anyrecord._records import Records
from anyrecord._records import open as open_records
from anyrecord._stores import Storage
from anyrecord._targets import target_path
from anyrecord._unpacking import check_tree, write_tree
from anyrecord.errors import ClosedError, FormatError

__all__ = ["Folder", "check_unpacking", "unpack"]

Paths: TypeAlias = list[str]  # inside `Folder`, the name `list` is a method


class Folder(Mapping[str, bytes]):
    """A packed folder: a read-only mapping from paths to the contents of files, in stored order.

    >>> import anyrecord, os
    >>> os.makedirs("pets/dogs", exist_ok=True)
    >>> for path in ("pets/cat.txt", "pets/dogs/rex.txt"):
    ...     with open(path, "w") as file:
    ...         _ = file.write(f"this is {path}")
    >>> anyrecord.pack("pets", "pets.ffr", overwrite=True)
    >>> folder = anyrecord.Folder("pets.ffr")
    >>> len(folder), folder["cat.txt"], "dogs/rex.txt" in folder
    (2, b'this is pets/cat.txt', True)
    >>> folder.list(), folder.list("dogs"), folder.glob("**/r*.txt")
    (['cat.txt', 'dogs'], ['dogs/rex.txt'], ['dogs/rex.txt'])
    >>> folder.read_many(["dogs/rex.txt", "cat.txt"])     # one batched read
    [b'this is pets/dogs/rex.txt', b'this is pets/cat.txt']
    >>> folder.unpack("copy")

    `path` is a file that `anyrecord.pack` or FFRecord's own `pack_folder` wrote. Its listing is read as data and never
    unpickled. A listing that holds anything but names and record numbers raises `FormatError`. `checksums=False` reads
    without checking hashes. The path can be a URL, or a file object as for `open`. `storage`, `cache` and
    `cache_folder_bytes` are those of `open`.

    Paths have `/` between names on every system. `./a`, `a/` and `a//b` mean `a`, `a` and `a/b`. A path that begins
    with `/` or contains `..` is never found. You can use a `Folder` from many threads and in forked children, and you
    can pickle it.
    """

    def __init__(
        self,
        path: StrPath | BinaryIO,
        *,
        checksums: Checksums = True,
        storage: Storage | None = None,
        cache: StrPath | None = None,
        cache_folder_bytes: SupportsIndex | None = None,
    ) -> None:
        self._load(
            open_records(
                path,
                format="ffrecord",
                checksums=checksums,
                storage=storage,
                cache=cache,
                cache_folder_bytes=cache_folder_bytes,
            )
        )

    def _load(self, records: Records) -> None:
        self._records = records
        try:
            path = records.paths[-1]
            if not len(records):
                text = "a listing in the last record"
                raise FormatError(
                    f"{path} is not a packed folder: expected {text}, found no records",
                    path=path,
                    expected=text,
                    found="no records",
                )
            record = records[-1]
            # The last record ends where the file ends.
            offset = records._source.descriptions()[-1][3] - len(record)
            self._listing = Listing.parse(record, path=path, number=len(records) - 1, offset=offset)
            self._digest = _core.sha1(record)
        except BaseException:
            records.close()
            raise

    # -- a mapping --

    def __getitem__(self, path: StrPath) -> bytes:
        return self._records[self._record_of(path)]

    def __len__(self) -> int:
        return self._listing.num_files

    def __iter__(self) -> Iterator[str]:
        return (path for path, node in walk(self._listing.tree) if isinstance(node, int))

    def __contains__(self, path: object) -> bool:
        return self.is_file(path)  # type: ignore[arg-type]  # `in` accepts any object

    def read_many(self, paths: Iterable[StrPath]) -> list[bytes]:
        """Returns the contents of many files, in the order of `paths`, with one batched read."""
        return self._records.__getitems__([self._record_of(path) for path in paths])

    def open(self, path: StrPath) -> io.BytesIO:
        """Opens a file of the folder as a binary file object in memory."""
        node = self._find(path)
        if not isinstance(node, int):
            code = ENOENT if node is None else EISDIR
            raise OSError(code, os.strerror(code), os.fspath(path))
        return io.BytesIO(self._records[node])

    # -- names --

    def exists(self, path: StrPath) -> bool:
        """Whether the path is a file or a folder. `""` is the whole packed folder."""
        return self._find(path) is not None

    def is_file(self, path: StrPath) -> bool:
        """Whether the path is a file."""
        return isinstance(self._find(path), int)

    def is_dir(self, path: StrPath) -> bool:
        """Whether the path is a folder."""
        return isinstance(self._find(path), dict)

    def list(
        self, path: StrPath = "", *, recursive: bool = False, files: bool = True, folders: bool = True
    ) -> list[str]:
        """Lists the full paths of the files and folders in a folder, in stored order. A folder comes before its files.

        `recursive=True` lists all levels, `files=False` leaves out files, and `folders=False` leaves out folders.
        """
        tree = self._find(path)
        if not isinstance(tree, dict):
            code = ENOENT if tree is None else ENOTDIR
            raise OSError(code, os.strerror(code), os.fspath(path))
        prefix = "".join(f"{name}/" for name in _names(path))
        found = walk(tree, prefix) if recursive else ((prefix + name, node) for name, node in tree.items())
        return [path for path, node in found if (folders if isinstance(node, dict) else files)]

    def glob(self, pattern: str) -> Paths:
        """Lists the files whose path matches the pattern, in stored order.

        `*` matches within one name, `**` matches any number of folders. `[abc]` and `?` work as in a shell. Names that
        begin with a dot are matched like all others.
        """
        names = [None if name == "**" else compile_pattern(translate(name)) for name in _names(pattern)]
        return _Glob(names).below(self._listing.tree, "", frozenset({0}))

    @property
    def records(self) -> Records:
        """The stored records: one for each file, then the listing."""
        return self._records

    @property
    def tree(self) -> Mapping[str, Any]:
        """The listing: a mapping from file names to record numbers, and from folder names to such mappings."""
        return _read_only(self._listing.tree)

    def _find(self, path: object) -> int | Tree | None:
        node: int | Tree | None = self._listing.tree
        for name in _names(path):
            if not isinstance(node, dict):
                return None
            node = node.get(name)
        return node

    def _record_of(self, path: object) -> int:
        node = self._find(path)
        if isinstance(node, int):
            return node
        raise KeyError(f"{path} is a folder, not a file" if node is not None else path)

    # -- as a whole --

    def unpack(
        self,
        target: StrPath,
        *,
        overwrite: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Writes all files and folders to the folder `target`, which appears when it is complete.

        A target that exists and is not empty raises `FileExistsError`. With `overwrite=True`, the files are first
        written to a temporary folder next to the target. Then they are moved into the target and replace files of the
        same names. Links inside the target are never followed.

        A listing that cannot be unpacked on every system raises `FormatError` before anything is written. Examples are
        names that differ only in case, and names such as `C:`. `progress(done, total)` is called with bytes.
        """
        name = target_path(target)
        write_tree(self._records, self._listing.tree, name, bool(overwrite), progress)

    def close(self) -> None:
        """Closes the file. You can still list names; reading a file raises `ClosedError`."""
        self._records.close()

    @property
    def closed(self) -> bool:
        """Whether the folder was closed."""
        return self._records.closed

    def __enter__(self) -> Self:
        if self.closed:
            raise ClosedError("this folder is closed; open it again")
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        # The digest is of the content, not of the path, so it is the same in every process and on every host.
        files, folders = self._listing.num_files, self._listing.num_folders
        inside = f"{files} file{'s' * (files != 1)}, {folders} folder{'s' * (folders != 1)}"
        return f"<anyrecord.Folder: {inside}, sha1 {self._digest}>"

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other  # the comparison of `Mapping` would read all files

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self._records)


def unpack(
    source: StrPath,
    target: StrPath,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
    storage: Storage | None = None,
) -> None:
    """Writes all files of a packed folder to the folder `target`. This is the reverse of `pack`.

    >>> import anyrecord, os, pathlib
    >>> os.makedirs("pets", exist_ok=True)
    >>> _ = pathlib.Path("pets/cat.txt").write_text("this is a cat")
    >>> anyrecord.pack("pets", "pets.ffr", overwrite=True)
    >>> anyrecord.unpack("pets.ffr", "pets-again")
    >>> pathlib.Path("pets-again/cat.txt").read_text()
    'this is a cat'

    It does the same as `anyrecord.Folder(source).unpack(target)` and takes the same options.
    """
    name = target_path(target)
    with Folder(source, storage=storage) as folder:
        folder.unpack(name, overwrite=overwrite, progress=progress)


def check_unpacking(folder: Folder, target: StrPath, *, overwrite: bool) -> None:
    """Raises what `Folder.unpack` would raise before it writes. Writes nothing."""
    check_tree(folder._records, folder._listing.tree, target_path(target), overwrite)


def _restore(cls: type[Folder], records: Records) -> Folder:
    folder = cls.__new__(cls)
    folder._load(records)
    return folder


def _names(path: object) -> Paths:
    """The names in a path. For a path that can never be in a folder it returns ["/"], a name that no file has."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if hasattr(path, "as_posix"):
        text = path.as_posix()  # of a `Path`: with slashes on every system
    if not isinstance(text, str) or text.startswith("/"):
        return ["/"]
    return [name for name in text.split("/") if name not in ("", ".")]


def _read_only(tree: Tree) -> Mapping[str, Any]:
    return MappingProxyType({name: _read_only(node) if isinstance(node, dict) else node for name, node in tree.items()})


class _Glob:
    """A glob pattern. It is matched level by level, so only folders that can contain a match are searched."""

    def __init__(self, names: list[Pattern[str] | None]) -> None:
        self.names = names  # None is `**`

    def below(self, tree: Tree, prefix: str, states: frozenset[int]) -> Paths:
        """The files below `tree` that match. `states`: how many names of the pattern the path so far can have used."""
        found: Paths = []
        states = self.closure(states)
        for name, node in tree.items():
            stars = {state for state in states if state < len(self.names) and self.names[state] is None}
            used = {
                state + 1
                for state in states - stars
                if state < len(self.names) and self.names[state].match(name)  # type: ignore[union-attr]
            }
            path = prefix + name
            if isinstance(node, dict):
                found += self.below(node, path + "/", frozenset(stars | used))
            elif len(self.names) in used | self.closure(stars):
                found.append(path)
        return found

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        """Adds the states reached if a `**` matches no folder at all."""
        reached = set(states)
        for state in sorted(reached):
            while state < len(self.names) and self.names[state] is None:
                state += 1
                reached.add(state)
        return frozenset(reached)
