"""Files that a Python object reads: an obstore store, or an fsspec file system.

The object is asked for bytes with one call for many ranges. Neither library is imported here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from anyrecord._dataclasses import dataclass
from anyrecord._locations import is_url, redacted, shown
from anyrecord.errors import FormatError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["FsspecFiles", "ObstoreFiles", "StoreFiles"]

Listed: TypeAlias = tuple[list[tuple[str, int]], list[str]]
"""Objects with their sizes, and folders."""
Numbers: TypeAlias = list[int]  # inside `StoreFiles`, the name `list` is a method


_TOGETHER = 16
"""Objects whose sizes are asked for at the same time."""


@dataclass(frozen=True, slots=True)
class _Known:
    size: int
    tag: object
    """What is different if the object was replaced. None if the store has nothing of that kind."""


class StoreFiles:
    """Files that a Python object reads. The core calls `ask_sizes`, `size`, `size_if_any`, `read` and `check`.

    It calls them with the names that `named` returns, which are shown to users.
    """

    asks_for_names = False
    """Whether an exact name is asked for before it is taken for a pattern. Else it is looked for in the listing."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._process = os.getpid()
        self._objects: dict[str, _Known] = {}
        self._urls: dict[str, str] = {}
        """The URLs, by their names without logins and signatures."""
        self._joined: tuple[StoreFiles, ...] = ()
        self.calls = self.bytes_read = 0
        self.waited_seconds = 0.0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreFiles) and (self._store is other._store or bool(self._store == other._store))

    __hash__ = None  # type: ignore[assignment]  # two stores with equal options are equal, and have no hash

    def __getstate__(self) -> dict[str, Any]:
        import pickle  # imported here because the import is slow

        try:
            pickle.dumps(self._store)
        except Exception as error:
            kind = type(self._store).__name__
            raise TypeError(
                f"records of this {kind} cannot be pickled, because the {kind} itself cannot ({error}); "
                "open them in each process, or pass storage= as a dict"
            ) from None
        return {"_store": self._store, "_objects": self._objects, "_urls": self._urls}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_store"])  # type: ignore[misc]  # what belongs to a process is made anew
        self._objects, self._urls = state["_objects"], state["_urls"]

    def together(self, others: Iterable[StoreFiles]) -> StoreFiles:
        """The files of this and of equal stores as one, for sequences that are joined. What they count is added up."""
        parts = [part for files in (self, *others) for part in files._joined or (files,)]
        distinct = tuple({id(part): part for part in parts}.values())
        if len(distinct) == 1:
            return self
        joined = type(self)(self._store)
        joined._joined = distinct
        for part in distinct:
            joined._objects |= part._objects
            joined._urls |= part._urls
        return joined

    def costs(self) -> tuple[int, int, float]:
        """How many calls there were, how many bytes they brought, and how many seconds they took."""
        counts = [(self.calls, self.bytes_read, self.waited_seconds), *(part.costs() for part in self._joined)]
        calls, sizes, seconds = zip(*counts, strict=True)
        return sum(calls), sum(sizes), sum(seconds)

    def named(self, path: str) -> str:
        """The name of a path for the core, without secrets."""
        if not is_url(path):
            return path
        name, number = shown(path), 1
        while self._urls.setdefault(name, path) != path:  # two URLs differ only in what is not shown
            number += 1
            name = f"{shown(path)}#{number}"
        return name

    def _path(self, name: str) -> str:
        return self._urls.get(name, name)

    def path(self, path: str) -> str:
        """A path as the store writes it."""
        raise NotImplementedError

    def size(self, name: str) -> int:
        """The size of an object. It is asked for once."""
        path = self._path(name)
        known = self._objects.get(path)
        if known is None:
            known = self._objects[path] = self._asked(path)
        return known.size

    def ask_sizes(self, names: Sequence[str]) -> None:
        """Asks for the sizes of objects, many at once. If that fails, `size` raises the error."""
        unknown = [name for name in dict.fromkeys(names) if self._path(name) not in self._objects]
        if len(unknown) < 2:
            return
        from concurrent.futures import ThreadPoolExecutor  # imported here because the import is slow

        pool = ThreadPoolExecutor(min(_TOGETHER, len(unknown)), "anyrecord-sizes")
        try:
            list(pool.map(self.size_if_any, unknown))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def size_if_any(self, name: str) -> int | None:
        """The size of an object. None if there is none, or if the store does not say."""
        try:
            return self.size(name)
        except OSError:
            return None

    def read(self, name: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        """The bytes of many ranges, `(begin, end)` each. An object that was replaced is an error."""
        path = self._path(name)
        wanted = [(begin, end) for begin, end in ranges if begin < end]  # stores refuse empty ranges
        if not wanted:
            return [b""] * len(ranges)
        starts, ends = [begin for begin, _ in wanted], [end for _, end in wanted]
        read, about = self._call(path, lambda: self._pieces(path, starts, ends))
        found: Iterator[Buffer] = iter(read)
        pieces = [next(found, b"") if begin < end else b"" for begin, end in ranges]
        self.check(name, about)
        lengths = [memoryview(piece).nbytes for piece in pieces]
        if lengths != [end - begin for begin, end in ranges]:
            raise OSError(errno.EIO, "the store returned fewer or other bytes than were asked for", name)
        self.bytes_read += sum(lengths)
        return pieces

    def check(self, name: str, about: _Known | None = None) -> None:
        """Raises FormatError if the object is not the one that was opened. `about`: what it is now, if known."""
        path = self._path(name)
        known = self._objects.get(path)
        if known is not None and known.tag is not None and (about or self._asked(path)) != known:
            raise FormatError(f"{name}: the object changed after it was opened; open it again", path=name)

    def list(self, folder: str, deep: bool) -> Listed:
        """The objects in a folder with their sizes, and the folders in it. `deep`: the objects of all levels."""
        raise NotImplementedError

    def _pieces(self, path: str, starts: Numbers, ends: Numbers) -> Any:
        """The bytes of ranges that are not empty, and what the store said about the object together with them, or None.
        `_call` calls it, and decides what it must return."""
        raise NotImplementedError

    def _about(self, path: str) -> Any:
        """What is known about an object. `_call` calls it, too."""
        raise NotImplementedError

    def _asked(self, path: str) -> _Known:
        known: _Known = self._call(path, lambda: self._about(path))
        return known

    def _call(self, path: str, act: Callable[[], Any]) -> Any:
        """Calls the store. Its own kinds of errors become OSError. None of them shows a secret."""
        self.calls += 1
        begun = monotonic()
        try:
            return act()
        except FileNotFoundError as error:
            if error.filename is not None and _is_clean(error):
                raise
            raise FileNotFoundError(errno.ENOENT, "there is no such object in the store", shown(path)) from None
        except (NotImplementedError, MemoryError):
            raise
        except RuntimeError as error:
            if os.getpid() == self._process:
                raise
            # The threads and the connections of the store belong to the parent.
            raise OSError(errno.EPERM, self._forked_text(), shown(path)) from error
        except OSError as error:
            if _is_clean(error):
                raise
            raise OSError(error.errno or errno.EIO, redacted(error.strerror or str(error)), shown(path)) from None
        except Exception as error:
            text = f"the {type(self._store).__name__} failed: {redacted(str(error).partition(chr(10))[0])}"
            raise OSError(errno.EIO, text, shown(path)) from (error if _is_clean(error) else None)
        finally:
            self.waited_seconds += monotonic() - begun

    def _forked_text(self) -> str:
        return (
            f"this {type(self._store).__name__} cannot be used in a forked process; open the records there, with a "
            "store that is made there, or start the process with 'spawn'"
        )


def _is_clean(error: Exception) -> bool:
    """Whether an error of a store shows no secret."""
    text = f"{error} {getattr(error, 'filename', '')}"
    return redacted(text) == text


class ObstoreFiles(StoreFiles):
    """The objects of an obstore store."""

    def path(self, path: str) -> str:
        if is_url(path):
            raise ValueError(f"{shown(path)!r} is a URL; with a store as storage=, pass the name of the object in it")
        return path.lstrip("/")

    def _call(self, path: str, act: Callable[[], Any]) -> Any:
        """`act` starts the call and returns an awaitable: the blocking functions of obstore do not hear Ctrl-C."""
        from anyrecord import _waiting  # imported here because asyncio is slow to import

        # The threads of obstore do not exist in a child, so a call would never return. A new store has the same ones.
        if _waiting.used_by_parent():
            raise OSError(
                errno.EPERM,
                "an obstore store cannot be used in a forked process after its parent has used one; start the process "
                "with 'spawn', or pass storage= as a dict",
                path,
            )
        return super()._call(path, lambda: _waiting.result_of(act))

    async def _about(self, path: str) -> _Known:
        return _known_of(await self._store.head_async(path))

    async def _pieces(self, path: str, starts: Numbers, ends: Numbers) -> tuple[Sequence[Buffer], _Known | None]:
        if len(starts) == 1:  # one range comes with the tag of the object
            found = await self._store.get_async(path, options={"range": (starts[0], ends[0])})
            return [await found.bytes_async()], _known_of(found.meta)
        return await self._store.get_ranges_async(path, starts=starts, ends=ends), None

    def list(self, folder: str, deep: bool) -> Listed:
        prefix = folder.rstrip("/") or None
        if deep:
            metas = self._call(folder, lambda: self._store.list(prefix).collect_async())
            folders = []
        else:
            level = self._call(folder, lambda: self._store.list_with_delimiter_async(prefix))
            metas, folders = level["objects"], level["common_prefixes"]
        self._objects.update((meta["path"], _known_of(meta)) for meta in metas)
        return [(meta["path"], meta["size"]) for meta in metas], list(folders)


def _known_of(meta: Any) -> _Known:
    return _Known(meta["size"], meta.get("e_tag") or meta.get("version") or meta.get("last_modified"))


class FsspecFiles(StoreFiles):
    """The files of an fsspec file system."""

    asks_for_names = True  # a question mark can be part of a URL, and not every file system lists its files

    def path(self, path: str) -> str:
        found: str = self._store._strip_protocol(path)
        return f"{found.rstrip('/')}/" if path.endswith("/") else found

    def _about(self, path: str) -> _Known:
        self._store.invalidate_cache(path)
        about = self._store.info(path)
        if about.get("type") == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if about.get("size") is None:
            raise OSError(errno.EIO, "the file system does not know the size of the file", path)
        tag = next((str(about[key]) for key in _TAGS if about.get(key)), None)
        return _Known(int(about["size"]), tag)

    def _pieces(self, path: str, starts: Numbers, ends: Numbers) -> Any:
        return self._store.cat_ranges([path] * len(starts), starts, ends, on_error="raise"), None

    def list(self, folder: str, deep: bool) -> Listed:
        at = folder.rstrip("/")
        self._store.invalidate_cache(None if deep else at)  # files may have been added since the last listing
        if deep:
            found = self._call(folder, lambda: self._store.find(at, detail=True))
            entries = list(found.values())
        else:
            entries = self._call(folder, lambda: self._store.ls(at, detail=True))
        files = [(entry["name"], int(entry.get("size") or 0)) for entry in entries if entry["type"] != "directory"]
        return files, [entry["name"] for entry in entries if entry["type"] == "directory"]


_TAGS = (
    *("ETag", "etag", "e_tag", "generation", "version_id"),
    *("mtime", "LastModified", "last_modified", "updated", "modified", "created"),
)
"""The names that file systems have for what changes if a file is replaced."""
