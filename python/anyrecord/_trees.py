"""Where files are looked for: the local file system, an object store, or a Python object that reads files.

A tree lists folders and finds the matches of a glob. It knows nothing about shards and formats.
"""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from anyrecord import _core
from anyrecord._locations import is_web, shown, split_query
from anyrecord._publishing import refuse_unfinished, refuse_unfinished_file, refuse_unfinished_matches

if TYPE_CHECKING:
    from anyrecord._store_files import StoreFiles

__all__ = ["LOCAL", "Entry", "Found", "LocalTree", "ObjectTree", "StoreTree", "Tree", "UrlTree"]

_MAGIC = re.compile(r"[*?[]")
_QUOTED_MAGIC = re.compile("%(2A|3F|5B)", re.IGNORECASE)


class Entry(NamedTuple):
    """Something in a folder that can be opened."""

    name: str
    """Its name in the folder."""
    path: str
    """Its path, or its URL."""
    size: int | None
    """None: not known without a request or a system call."""


class Found(NamedTuple):
    """The matches of a glob, sorted by path."""

    files: list[Entry]
    has_folders: bool
    """Whether folders match, too."""


class Tree(Protocol):
    """What finding files needs of a file tree."""

    is_local: bool

    def split(self, path: str) -> tuple[str, str]:
        """The folder and the name of a path. `join` joins them again."""

    def join(self, folder: str, name: str) -> str:
        """The path of a name in a folder."""

    def shown(self, path: str) -> str:
        """A path as errors show it."""

    def entries(self, folder: str) -> Iterator[Entry]:
        """The files in a folder, and broken links. Nothing if there is no such folder."""

    def has_magic(self, path: str) -> bool:
        """Whether a path is a glob."""

    def glob(self, pattern: str) -> Found:
        """The files that match."""

    def refuse_unfinished(self, folder: str, concerns: Callable[[str], object] | None = None) -> None:
        """Raises PublishError if files of the folder are being published, and `concerns` is true for one of them."""

    def refuse_unfinished_file(self, path: str) -> None:
        """Raises PublishError if this file is being published, or shards of it."""

    def refuse_unfinished_matches(self, pattern: str) -> None:
        """Raises PublishError if a file that the glob would match is being published."""


class LocalTree:
    """The local file system."""

    is_local = True

    refuse_unfinished = staticmethod(refuse_unfinished)
    refuse_unfinished_file = staticmethod(refuse_unfinished_file)
    refuse_unfinished_matches = staticmethod(refuse_unfinished_matches)

    def split(self, path: str) -> tuple[str, str]:
        return os.path.split(path)

    def join(self, folder: str, name: str) -> str:
        return os.path.join(folder, name)

    def shown(self, path: str) -> str:
        return path

    def entries(self, folder: str) -> Iterator[Entry]:
        try:
            entries = os.scandir(folder or os.curdir)
        except FileNotFoundError:
            return
        with entries:
            for entry in entries:
                # A broken link must fail to open, not be skipped.
                if entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path)):
                    yield Entry(entry.name, os.path.join(folder, entry.name), None)

    def has_magic(self, path: str) -> bool:
        return _MAGIC.search(path) is not None

    def glob(self, pattern: str) -> Found:
        matches = sorted(set(glob.glob(pattern, recursive=True)))  # two ** in one pattern find a file twice
        files = [Entry(os.path.basename(match), match, None) for match in matches if not os.path.isdir(match)]
        return Found(files, has_folders=len(files) < len(matches))


LOCAL = LocalTree()


class ObjectTree:
    """Objects. Folders exist only as prefixes of their names.

    A set that is being published has a journal among its objects, so the listing that finds them finds it, too.
    """

    is_local = False

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool], tuple[list[Entry], list[str]]] = {}

    def parts(self, path: str) -> tuple[str, str]:
        """The store, and the name of an object in it as it is written: `("s3://bucket/", "data/train.ffr")`."""
        raise NotImplementedError

    def plain(self, name: str) -> str:
        """A written name as it is."""
        return name

    def pattern(self, name: str) -> str:
        """A written name as a pattern of plain names."""
        return name

    def listed(self, folder: str, deep: bool) -> tuple[list[tuple[str, int]], list[str]]:
        """The objects under a folder, each with its size, and the folders, unless all levels are listed."""
        raise NotImplementedError

    def shown(self, path: str) -> str:
        return shown(path)

    def split(self, path: str) -> tuple[str, str]:
        store, name = self.parts(path)
        folder, slash, base = name.rpartition("/")
        return store + folder + slash, self.plain(base)

    def join(self, folder: str, name: str) -> str:
        return folder + name if not folder or folder.endswith("/") else f"{folder}/{name}"

    def has_magic(self, path: str) -> bool:
        return _MAGIC.search(self.parts(path)[1]) is not None

    def entries(self, folder: str) -> Iterator[Entry]:
        yield from self._below(folder, deep=False)[0]

    def exact(self, path: str) -> list[Entry]:
        """The object of exactly this name, if there is one, whatever characters the name has. It lists the folder."""
        folder, name = self.split(path)
        return [entry for entry in self.entries(folder) if entry.name == name]

    def has_folders(self, path: str) -> bool:
        """Whether a name without a slash at its end can be a folder."""
        return True

    def is_folder(self, path: str) -> bool:
        """Whether there are objects in a folder of that name. It takes a request."""
        files, folders = self._below(path, deep=False)
        return bool(files or folders)

    def glob(self, pattern: str) -> Found:
        wanted, files, folders = self._candidates(pattern)
        matches = [entry for entry in files if _matches(tuple(entry.name.split("/")), wanted)]
        found = [Entry(entry.name.rpartition("/")[2], entry.path, entry.size) for entry in matches]
        found.sort(key=lambda entry: entry.path)
        return Found(found, any(_matches((folder,), wanted) for folder in folders))

    def _candidates(self, pattern: str) -> tuple[tuple[str, ...], list[Entry], list[str]]:
        """What the names below a folder have to match, the files there, and the folders."""
        store, name = self.parts(pattern)
        names = name.split("/")
        fixed = next((at for at, part in enumerate(names) if _MAGIC.search(part)), len(names) - 1)
        wanted = tuple(map(self.pattern, names[fixed:]))
        deep = len(wanted) > 1 or wanted == ("**",)
        return wanted, *self._below(store + "/".join(names[:fixed]), deep=deep)

    def _below(self, folder: str, *, deep: bool) -> tuple[list[Entry], list[str]]:
        """What is in a folder, by names that are relative to it. Each folder is listed once."""
        key = folder.rstrip("/"), deep
        if key in self._known:
            return self._known[key]
        objects, folders = self.listed(folder, deep)
        prefix = self._name(folder)
        prefix = f"{prefix}/" if prefix else ""
        found = []
        for path, size in objects:
            name = self.plain(self.parts(path)[1])
            # Some programs store an empty object with the name of a folder.
            if name.startswith(prefix) and len(name) > len(prefix):
                found.append(Entry(name[len(prefix) :], path, size))
        self._known[key] = found, [self._name(path)[len(prefix) :] for path in folders]
        return self._known[key]

    def _name(self, folder: str) -> str:
        return self.plain(self.parts(folder)[1].rstrip("/"))

    def journal(self, path: str) -> tuple[list[str], BaseException] | None:
        """The names in a journal, and the error for whoever needs one of them. None if it is gone."""
        raise NotImplementedError

    def refuse_unfinished(self, folder: str, concerns: Callable[[str], object] | None = None) -> None:
        for entry in self.entries(folder):
            if _is_journal(entry.name) and (found := self.journal(entry.path)):
                names, error = found
                if concerns is None or any(concerns(name) for name in names):
                    raise error

    def refuse_unfinished_file(self, path: str) -> None:
        folder, wanted = self.split(path)
        with suppress(OSError):  # a web server that lists nothing
            of_set = {entry.path for entry in self.entries(folder) if entry.name == f".{wanted}.publish"}
            for journal in of_set:
                if found := self.journal(journal):
                    raise found[1]
            self.refuse_unfinished(folder, lambda name: name == wanted)

    def refuse_unfinished_matches(self, pattern: str) -> None:
        wanted, files, _ = self._candidates(pattern)
        for entry in files:
            *folders, name = entry.name.split("/")
            if _is_journal(name) and (found := self.journal(entry.path)):
                names, error = found
                if any(_matches((*folders, other), wanted) for other in names):
                    raise error


class UrlTree(ObjectTree):
    """Objects that have URLs. Special characters of names are quoted in the addresses of a web server."""

    def __init__(self, url: str, options: tuple[tuple[str, str], ...]) -> None:
        super().__init__()
        self._options = list(options)
        self._is_web = is_web(url)
        self._query = split_query(url)[1]

    def parts(self, path: str) -> tuple[str, str]:
        scheme, _, rest = split_query(path)[0].partition("://")
        if scheme.lower() == "memory":
            return "memory://", rest.lstrip("/")
        host, _, name = rest.partition("/")
        return f"{scheme.lower()}://{host}/", name

    def plain(self, name: str) -> str:
        return _unquoted(name) if self._is_web else name

    def pattern(self, name: str) -> str:
        # A quoted star is a star. In a pattern, that is written as [*].
        return _unquoted(_QUOTED_MAGIC.sub(r"[\g<0>]", name)) if self._is_web else name

    def join(self, folder: str, name: str) -> str:
        return super().join(folder, _quoted(name) if self._is_web else name)

    def has_folders(self, path: str) -> bool:
        return not self._is_web

    def listed(self, folder: str, deep: bool) -> tuple[list[tuple[str, int]], list[str]]:
        try:
            objects, folders = _core.list_objects(folder + self._query, deep, self._options)
            return [(self._literal(url), size) for url, size in objects], folders
        except OSError as error:
            if not self._is_web:
                raise
            text = (
                f"the folder cannot be listed ({error.strerror or error}); "
                "most web servers cannot list files: pass the URL of each file"
            )
            raise OSError(error.errno or errno.EIO, text, shown(folder)) from None

    def journal(self, path: str) -> tuple[list[str], BaseException] | None:
        return _core.read_object_journal(path, self._options)

    def _literal(self, url: str) -> str:
        """A URL that is no pattern. The core does not quote the characters of patterns."""
        if not self._is_web or not _MAGIC.search(url):
            return url
        store, name = self.parts(url)
        for character, quoted in (("*", "%2A"), ("[", "%5B"), ("]", "%5D")):
            name = name.replace(character, quoted)
        return store + name + split_query(url)[1]


class StoreTree(ObjectTree):
    """Objects that a Python object reads: an obstore store or an fsspec file system."""

    def __init__(self, path: str, store: StoreFiles) -> None:
        super().__init__()
        self._store = store
        self._query = split_query(path)[1]

    def parts(self, path: str) -> tuple[str, str]:
        return "", path

    def exact(self, path: str) -> list[Entry]:
        if not self._store.asks_for_names:
            return super().exact(path)
        size = self._store.size_if_any(path + self._query)
        return [] if size is None else [Entry(self.split(path)[1], path + self._query, size)]

    def listed(self, folder: str, deep: bool) -> tuple[list[tuple[str, int]], list[str]]:
        with suppress(FileNotFoundError):
            return self._store.list(folder, deep)
        return [], []

    def journal(self, path: str) -> tuple[list[str], BaseException] | None:
        name = self._store.named(path)
        try:
            data = bytes(self._store.read(name, [(0, self._store.size(name))])[0])
        except FileNotFoundError:
            return None
        folder, slash, base = name.rpartition("/")
        target = folder + slash + ("" if base == ".anyrecord-folder.publish" else base[1 : -len(".publish")])
        return _core.parse_object_journal(name, target, data)


def _is_journal(name: str) -> bool:
    return name.startswith(".") and name.endswith(".publish")


def _unquoted(name: str) -> str:
    from urllib.parse import unquote  # imported here because few programs need it

    return unquote(name)


def _quoted(name: str) -> str:
    """Quotes what would end the name. Other special characters may stay: the name can be a pattern."""
    return name.replace("%", "%25").replace("?", "%3F").replace("#", "%23")


@lru_cache(256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def _matches(names: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    """Whether a path matches, name by name, with the rules of Python's `glob`: `*` matches no hidden name."""
    if not patterns:
        return not names
    first, rest = patterns[0], patterns[1:]
    if first == "**":
        if not rest and len(names) == 1 and not names[0].startswith("."):
            return True
        if _matches(names, rest):
            return True
        return bool(names) and not names[0].startswith(".") and _matches(names[1:], patterns)
    if not names or (names[0].startswith(".") and not first.startswith(".")):
        return False
    return _compiled(first).match(names[0]) is not None and _matches(names[1:], rest)
