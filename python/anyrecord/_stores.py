"""What `storage=` can be: a dict of options, an obstore store, or an fsspec file system.

An obstore store of a cloud or a web server is taken apart: its URL and its options go to the core, which reads. So is a
local one. Other objects are asked for their bytes, with one call for many ranges. Neither library is imported here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from anyrecord._locations import StrPath, scheme_of, shown, text_of
from anyrecord.errors import FormatError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Root", "Storage", "StoreFiles", "Stores", "resolve"]

Storage: TypeAlias = Mapping[str, Any] | Any
"""What `storage=` takes: a dict, an obstore store or an fsspec file system."""

Pairs: TypeAlias = tuple[tuple[str, str], ...]
Listed: TypeAlias = tuple[list[tuple[str, int]], list[str]]
"""Objects with their sizes, and folders."""
Numbers: TypeAlias = list[int]  # inside `StoreFiles`, the name `list` is a method


class Root(NamedTuple):
    """Where paths begin: a URL, or a local folder. It comes from a store."""

    base: str
    """Ends in a slash."""

    def path(self, path: StrPath) -> str:
        """A path that is relative to the store, as a URL or a local path."""
        text = text_of(path)
        if scheme_of(text) is not None or (os.path.isabs(text) and scheme_of(self.base) is None):
            if not text.startswith(self.base):
                raise ValueError(f"{shown(text)!r} is not in the store of storage=, which is {shown(self.base)!r}")
            return text
        front, question, query = self.base.partition("?") if self.base.startswith("http") else (self.base, "", "")
        return f"{front}{text.lstrip('/')}{question}{query}"


class Stores(NamedTuple):
    """What `storage=` means."""

    options: Pairs = ()
    """For the core."""
    root: Root | None = None
    store: StoreFiles | None = None


def resolve(storage: Storage | None) -> Stores:
    """Finds out what was passed as `storage=`.

    >>> resolve({"region": "eu-west-1", "allow_http": True, "max_requests": 8}).options
    (('allow_http', 'true'), ('max_requests', '8'), ('region', 'eu-west-1'))
    """
    if storage is None:
        return Stores()
    if isinstance(storage, Mapping):
        return Stores(_pairs(storage))
    bases = {(base.__module__.partition(".")[0], base.__name__) for base in type(storage).__mro__}
    names = {name for module, name in bases if module == "obstore"}
    if ("fsspec", "AbstractFileSystem") in bases:
        return _of_file_system(storage)
    if names and _has_headers(storage):
        return Stores(store=ObstoreFiles(storage))
    if names & {"S3Store", "GCSStore", "AzureStore"} and storage.credential_provider is None:
        return _of_cloud(storage, names)
    if "HTTPStore" in names:
        base, _, query = storage.url.partition("?")
        url = f"{base.rstrip('/')}/" + (f"?{query}" if query else "")
        return Stores(_client_pairs(storage), Root(url))
    if "LocalStore" in names:
        return Stores(root=Root(os.path.join(storage.prefix or "/", "")))
    if names:
        return Stores(store=ObstoreFiles(storage))
    raise TypeError(
        f"storage= takes a dict of options, an obstore store or an fsspec file system, not {type(storage).__name__}"
    )


def _pairs(options: Mapping[str, Any]) -> Pairs:
    # Sorted, so that equal options are equal: obstore gives them in any order.
    given = ((str(name), _option_text(name, value)) for name, value in options.items() if value is not None)
    return tuple(sorted(given))


def _option_text(name: object, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case timedelta():
            return f"{value.total_seconds()}s"
        case str() | int() | float():
            return str(value)
        case _:
            raise TypeError(f"storage option {name!r} must be a str, a number or a bool, not {type(value).__name__}")


def _of_cloud(store: Any, names: set[str]) -> Stores:
    options = dict(store.config)
    scheme = "s3" if "S3Store" in names else "gs" if "GCSStore" in names else "az"
    bucket = next(options.pop(key) for key in list(options) if key.removeprefix("aws_") in _BUCKETS)
    prefix = f"{store.prefix.strip('/')}/" if store.prefix else ""
    return Stores(_pairs(options) + _client_pairs(store), Root(f"{scheme}://{bucket}/{prefix}"))


_BUCKETS = frozenset({"bucket", "bucket_name", "google_bucket", "google_bucket_name", "container_name", "container"})


def _has_headers(store: Any) -> bool:
    """Whether a store adds headers of its own to each request. The core has no option for them."""
    return bool(dict(getattr(store, "client_options", None) or {}).get("default_headers"))


def _client_pairs(store: Any) -> Pairs:
    client = dict(store.client_options or {})
    client.pop("default_headers", None)  # empty, see `_has_headers`
    retry = dict(store.retry_config or {})
    backoff = dict(retry.pop("backoff", None) or {})
    backoff.pop("base", None)
    return _pairs(client) + _pairs(retry) + _pairs(backoff)


def _of_file_system(fs: Any) -> Stores:
    protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    if protocol in ("file", "local"):
        return Stores()
    return Stores(store=FsspecFiles(fs))


_THREADS = 16
"""Objects whose sizes are asked for at the same time."""


class _Known(NamedTuple):
    size: int
    tag: object
    """What is different if the object was replaced. None if the store has nothing of that kind."""


class StoreFiles:
    """Files that a Python object reads. The core calls `ask_sizes`, `size`, `size_if_any`, `read` and `check`."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._objects: dict[str, _Known] = {}
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
        return {"_store": self._store, "_objects": self._objects}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_store"])  # type: ignore[misc]  # what belongs to a process is made anew
        self._objects = state["_objects"]

    def path(self, path: str) -> str:
        """A path as the store writes it."""
        raise NotImplementedError

    def size(self, path: str) -> int:
        """The size of an object. It is asked for once."""
        known = self._objects.get(path)
        if known is None:
            known = self._objects[path] = self._asked(path)
        return known.size

    def ask_sizes(self, paths: Sequence[str]) -> None:
        """Asks for the sizes of objects, many at once. If that fails, `size` raises the error."""
        unknown = [path for path in dict.fromkeys(paths) if path not in self._objects]
        if len(unknown) < 2:
            return
        from concurrent.futures import ThreadPoolExecutor  # imported here because the import is slow

        with ThreadPoolExecutor(min(_THREADS, len(unknown)), "anyrecord-sizes") as pool:
            list(pool.map(self.size_if_any, unknown))

    def size_if_any(self, path: str) -> int | None:
        """The size of an object. None if there is none, or if the store does not say."""
        try:
            return self.size(path)
        except OSError:
            return None

    def read(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        """The bytes of many ranges, `(begin, end)` each. An object that was replaced is an error."""
        wanted = [(begin, end) for begin, end in ranges if begin < end]  # stores refuse empty ranges
        if not wanted:
            return [b""] * len(ranges)
        starts, ends = [begin for begin, _ in wanted], [end for _, end in wanted]
        read, about = self._call(path, lambda: self._pieces(path, starts, ends))
        found: Iterator[Buffer] = iter(read)
        pieces = [next(found, b"") if begin < end else b"" for begin, end in ranges]
        self.check(path, about)
        lengths = [memoryview(piece).nbytes for piece in pieces]
        if lengths != [end - begin for begin, end in ranges]:
            raise OSError(errno.EIO, "the store returned fewer or other bytes than were asked for", path)
        self.bytes_read += sum(lengths)
        return pieces

    def check(self, path: str, about: _Known | None = None) -> None:
        """Raises FormatError if the object is not the one that was opened. `about`: what it is now, if known."""
        known = self._objects.get(path)
        if known is not None and known.tag is not None and (about or self._asked(path)) != known:
            raise FormatError(f"{path}: the object changed after it was opened; open it again", path=path)

    def list(self, folder: str, deep: bool) -> Listed:
        """The objects in a folder with their sizes, and the folders in it. `deep`: the objects of all levels."""
        raise NotImplementedError

    def _pieces(self, path: str, starts: Numbers, ends: Numbers) -> tuple[Sequence[Buffer], _Known | None]:
        """The bytes of ranges, and what the store said about the object together with them."""
        raise NotImplementedError

    def _about(self, path: str) -> _Known:
        raise NotImplementedError

    def _asked(self, path: str) -> _Known:
        known: _Known = self._call(path, lambda: self._about(path))
        return known

    def _call(self, path: str, act: Callable[[], Any]) -> Any:
        """Calls the store. Its own kinds of errors become OSError."""
        self.calls += 1
        begun = monotonic()
        try:
            return act()
        except FileNotFoundError as error:
            if error.filename is not None:
                raise
            raise FileNotFoundError(errno.ENOENT, "there is no such object in the store", path) from error
        except (OSError, NotImplementedError, RuntimeError, MemoryError):
            raise
        except Exception as error:
            text = f"the {type(self._store).__name__} failed: {str(error).partition(chr(10))[0]}"
            raise OSError(errno.EIO, text, path) from error
        finally:
            self.waited_seconds += monotonic() - begun


class ObstoreFiles(StoreFiles):
    """The objects of an obstore store."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._process = os.getpid()

    def path(self, path: str) -> str:
        if scheme_of(path) is not None:
            raise ValueError(f"{shown(path)!r} is a URL; with a store as storage=, pass the name of the object in it")
        return path.lstrip("/")

    def _call(self, path: str, act: Callable[[], Any]) -> Any:
        if os.getpid() != self._process:  # the threads of obstore do not exist here, so a call would never return
            raise OSError(
                errno.EPERM,
                "an obstore store cannot be used in a forked process; open the records there, start the process with "
                "'spawn', or pass storage= as a dict",
                path,
            )
        return super()._call(path, act)

    def _about(self, path: str) -> _Known:
        return _known_of(self._store.head(path))

    def _pieces(self, path: str, starts: Numbers, ends: Numbers) -> tuple[Sequence[Buffer], _Known | None]:
        if len(starts) == 1:  # one range comes with the tag of the object
            found = self._store.get(path, options={"range": (starts[0], ends[0])})
            return [found.bytes()], _known_of(found.meta)
        return self._store.get_ranges(path, starts=starts, ends=ends), None

    def list(self, folder: str, deep: bool) -> Listed:
        prefix = folder.rstrip("/") or None
        if deep:
            metas = self._call(folder, lambda: self._store.list(prefix).collect())
            folders = []
        else:
            level = self._call(folder, lambda: self._store.list_with_delimiter(prefix))
            metas, folders = level["objects"], level["common_prefixes"]
        self._objects.update((meta["path"], _known_of(meta)) for meta in metas)
        return [(meta["path"], meta["size"]) for meta in metas], list(folders)


def _known_of(meta: Any) -> _Known:
    return _Known(meta["size"], meta.get("e_tag") or meta.get("version") or meta.get("last_modified"))


class FsspecFiles(StoreFiles):
    """The files of an fsspec file system."""

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

    def _pieces(self, path: str, starts: Numbers, ends: Numbers) -> tuple[Sequence[Buffer], _Known | None]:
        return self._store.cat_ranges([path] * len(starts), starts, ends, on_error="raise"), None

    def list(self, folder: str, deep: bool) -> Listed:
        at = folder.rstrip("/")
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
