"""`pack_folder` and `PackedFolder`: a folder as one file."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, TypeAlias

import anyrecord
from anyrecord.compat._types import StrPath, exact, is_url, shown, split_query, text_of
from anyrecord.compat.ffrecord.reader import FileReader, Sample

__all__ = ["PackedFolder", "pack_folder"]

Items: TypeAlias = list[str | Path]  # inside `PackedFolder`, the name `list` is a method


def pack_folder(folder: StrPath, out_file: StrPath, verbose: bool = False) -> None:
    """Stores a folder and everything in it as one file. The name of the file must end with `.ffr`."""
    source, target = text_of(folder), text_of(out_file)
    if not is_url(source) and not os.path.isdir(source):  # `pack` refuses a URL by name
        raise AssertionError("'folder' must be a directory")
    if os.path.splitext(split_query(target)[0])[1] != ".ffr":
        raise AssertionError(f"{shown(target)} does not end with .ffr")
    parent = os.path.dirname(target) or os.curdir
    if not is_url(target) and not os.path.isdir(parent):
        raise RuntimeError(f"'fd > 0' failed. Failed to open file {target}: {os.strerror(2)}")
    anyrecord.pack(
        source, target, overwrite=True, progress=_printer(source) if verbose and not is_url(source) else None
    )


def _printer(folder: str) -> Callable[[int, int], None]:
    total = sum(1 for _ in _files(folder))
    width = len(str(total))
    lines = enumerate(_files(folder), 1)

    def print_next(_done: int, _total: int) -> None:
        for index, path in lines:
            print(f"{index:0{width}d}/{total} {path}", flush=True)
            break

    return print_next


def _files(folder: str) -> Iterator[str]:
    """The files in the order in which they are packed."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            yield from _files(path)
        else:
            yield path


class PackedFolder:
    """A packed folder, read without unpacking it.

    >>> import os
    >>> from anyrecord.compat.ffrecord import PackedFolder, pack_folder
    >>> os.makedirs("just_a_folder/sub", exist_ok=True)
    >>> for path in ("just_a_folder/001.txt", "just_a_folder/sub/002.txt"):
    ...     with open(path, "w") as file:
    ...         _ = file.write("text")
    >>> pack_folder("just_a_folder", "packed.ffr")
    >>> folder = PackedFolder("packed.ffr")
    >>> folder.list(), folder.list("sub"), folder.is_dir("sub")
    (['001.txt', 'sub'], ['002.txt'], True)
    >>> folder.read("001.txt").tobytes()
    b'text'

    The listing in the file is read as data. Nothing in it is ever executed.
    """

    def __init__(self, ffr_file: StrPath, check_data: bool = True) -> None:
        self.reader = FileReader(ffr_file, check_data)
        names = [exact(name) for name in self.reader.fnames]
        with anyrecord.Folder(names, checksums=check_data) as folder:  # type: ignore[arg-type]
            self.structure: OrderedDict[str, Any] = _ordered(folder.tree)

    def num_files(self) -> int:
        """How many files there are."""
        return self.reader.n - 1

    def read_one(self, fname: StrPath) -> Sample:
        """Returns the contents of a file."""
        return self.reader.read_one(self._index(fname))

    def read(self, fnames: Any) -> Any:
        """Returns the contents of many files with one batched read. If `fnames` is one path, of that file."""
        if isinstance(fnames, str | os.PathLike):
            return self.read_one(fnames)
        if not isinstance(fnames, list | tuple):
            raise AssertionError("fnames must be a list or a tuple")
        return self.reader.read([self._index(fname) for fname in fnames])

    def list(
        self, path: StrPath | None = None, list_file: bool = True, list_dir: bool = True, recursive: bool = False
    ) -> Items:
        """Lists the content of a folder, relative to the folder. Top-level names are `str`, deeper paths are `Path`."""
        node = self.structure if path is None else self._find(path)
        if node is None:
            raise AssertionError(f"{path} does not exist")
        if not isinstance(node, OrderedDict):
            raise AssertionError(f"{path} is not a directory but a file")
        return list(_items(node, (), list_file, list_dir, recursive))

    def exists(self, path: StrPath) -> bool:
        """Whether the path is a file or a folder."""
        return self._find(path) is not None

    def is_file(self, path: StrPath) -> bool:
        """Whether the path is a file."""
        return isinstance(self._find(path), int)

    def is_dir(self, path: StrPath) -> bool:
        """Whether the path is a folder."""
        return isinstance(self._find(path), OrderedDict)

    def _find(self, path: StrPath) -> Any:
        node: Any = self.structure
        for name in PurePath(path).parts:
            node = node.get(name) if isinstance(node, OrderedDict) else None
        return node

    def _index(self, path: StrPath) -> int:
        node = self._find(path)
        if node is None:
            raise AssertionError(f"{path} does not exist")
        if not isinstance(node, int):
            raise AssertionError(f"{path} is not a file but a directory")
        return node


def _ordered(tree: Mapping[str, Any]) -> OrderedDict[str, Any]:
    return OrderedDict((name, _ordered(node) if isinstance(node, Mapping) else node) for name, node in tree.items())


def _items(
    node: Mapping[str, Any], above: tuple[str, ...], files: bool, folders: bool, recursive: bool
) -> Iterator[str | Path]:
    for name, inner in node.items():
        is_folder = isinstance(inner, OrderedDict)
        if folders if is_folder else files:
            yield Path(*above, name) if above else name
        if is_folder and recursive:
            yield from _items(inner, (*above, name), files, folders, recursive)
