"""`create`: writes records to one file or to many shards. The final names appear only when all files are complete."""

from __future__ import annotations

import atexit
import errno
import os
import warnings
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self, SupportsIndex, TypedDict

from anyrecord import _core
from anyrecord._dataclasses import dataclass, replace
from anyrecord._locations import StrPath, is_url, shown, split_query
from anyrecord._numbers import MOST_COUNT, MOST_THREADS, integer, optional_number
from anyrecord._object_sets import (
    existing_object_shards,
    journal_url,
    publish_objects,
    refuse_existing,
    refuse_interrupted_objects,
    refuse_web_set,
)
from anyrecord._options import mark_worker_process
from anyrecord._shard_names import existing_shards, shard_paths
from anyrecord._stores import Pairs, Storage
from anyrecord._targets import (
    Destination,
    destination,
    missing_folder,
    refuse_folder_name,
    refuse_interrupted,
    refuse_unwritable,
)
from anyrecord._temporaries import Leftovers
from anyrecord.errors import ClosedError

__all__ = ["Writer", "create"]


_CODEC_OF_SUFFIX = {
    ".tfrecord.gz": "gzip",
    ".tfrecord.zlib": "zlib",
    ".tfrecords.gz": "gzip",
    ".tfrecords.zlib": "zlib",
}


@dataclass(frozen=True, slots=True)
class Creating:
    """The checked keywords of `create` that all formats have. The core reads the attributes by name."""

    format: str
    overwrite: bool
    durable: bool
    threads: int | None
    """None: one for each core, if there is enough to compress."""
    sharding: tuple[str, int]
    """("one", 0), ("turns", shards), ("bytes", most), ("records", most), or ("explicit", shards) of `convert`."""
    num_records: int | None
    tally: bool = False
    """Whether to keep a checksum of the records, to compare it with the file after writing."""
    together_with: _core.Writer | None = None
    """Another writer, if the files of both are published together."""
    storage: Pairs = ()
    """The options of the store, if a URL is written to."""
    shard_urls: tuple[str, ...] = ()
    """The URLs of the shards, if a URL is written to and their number is known."""
    in_set: bool = False
    """Whether the objects of several writers appear together."""


class FormatOptions(TypedDict, total=False):
    """The keywords of `create` that only some formats have."""

    codec: Literal["none", "snappy", "gzip", "zlib", "zstd", "brotli"] | None
    level: SupportsIndex | None
    window_log: SupportsIndex | None
    group_size: SupportsIndex | None
    transpose: bool | None
    transpose_bucket_size: SupportsIndex | None
    pad_to_block_boundary: bool | None
    chunk_bytes: SupportsIndex | None


class Writer(_core.Writer):
    """Writes records. `anyrecord.create` returns one; use it in a `with` block.

    The end of the block publishes the file. If an exception leaves the block, nothing is published. `num_records` and
    `num_bytes` count what was written so far. A writer that you neither close nor discard publishes nothing and issues
    a RuntimeWarning.
    """

    # `write`, `write_many`, `num_records`, `num_bytes`, `format` and `closed` are in the extension type.

    _path: str | None = None
    _storage: Pairs = ()
    """The options of the store, if the path is a URL."""
    _sharding: tuple[str, int]
    _overwrite: bool
    _names: list[str] | None = None
    """The files that were published. None before that."""
    _leftovers: Leftovers | None = None
    """What killed writers of the same name left."""
    _advice: str = "use a with block, or call close()"
    """What the warning about a discarded writer advises."""

    @property
    def paths(self) -> list[str]:
        """The files that this writer has published, or will publish when you close it.

        >>> import anyrecord, os
        >>> with anyrecord.create("train.ffr", shards=2, overwrite=True) as out:
        ...     out.write_many([b"one", b"two"])
        >>> [os.path.basename(path) for path in out.paths]
        ['train-00000-of-00002.ffr', 'train-00001-of-00002.ffr']

        The names of shards contain the number of shards. With `shard_bytes` and `shard_records`, that number is known
        only at the end, so the list is empty until the writer is closed. The list is also empty for a file object, and
        after `discard` or an error.
        """
        if self._names is not None:
            return [shown(name) for name in self._names]
        if self._path is None or self.closed:
            return []
        kind, number = self._sharding
        if kind == "one":
            return [shown(self._path)]
        return shard_paths(self._path, number) if kind in ("turns", "explicit") else []  # of a store, not of the web

    def close(self) -> None:
        """Finishes the file and publishes it under its name. A second call does nothing."""
        if self._names is None:
            self._publish_sealed()

    def _publish_sealed(self) -> None:
        """Publishes. Seals the writer first if that was not done."""
        count = self._seal()
        if self._path is None:
            self._publish()
            self._names = []
        elif self._sharding[0] == "one":
            if not is_url(self._path):
                refuse_interrupted(self._path, sharded=False)
            self._publish()
            self._names = [self._path]
        elif is_url(self._path):
            names, to = shard_paths(self._path, count), Destination(self._path, self._storage)
            journal = journal_url(self._path, is_folder=False)
            publish_objects([self], journal, self._overwrite, names, lambda: existing_object_shards(to))
            self._names = names
        else:
            refuse_interrupted(self._path, sharded=True)
            names, path = shard_paths(self._path, count), self._path
            journal = _core.journal_path(path, False)
            left = _core.publish_set([self], journal, self._overwrite, (names, lambda: existing_shards(path)))
            self._names = names
            warn_of_leftovers(path, left)
        if self._leftovers is not None:
            self._leftovers.remove()

    def discard(self) -> None:
        """Throws away what was written. Nothing is published, and an existing file stays unchanged.

        Raises ValueError if the file is already published, because that cannot be undone.
        """
        if self._names is not None:
            raise ValueError(f"{self._shown or 'the output'} is published already; delete the file to remove it")
        self._discard()

    def __enter__(self) -> Self:
        if self.closed:
            raise ClosedError("this writer is closed; create a new one")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._discard()
        elif not self._is_discarded:
            self.close()

    @property
    def _shown(self) -> str | None:
        return None if self._path is None else shown(self._path)

    @property
    def _is_discarded(self) -> bool:
        return self.closed and self._names is None

    def __del__(self) -> None:
        # In a forked child, a writer still belongs to the parent. The core leaves it alone and returns False.
        if self._discard():
            self._warn_of_discard("dropped before it was closed")

    def _warn_of_discard(self, how: str) -> None:
        result = "what was written there is incomplete" if self._path is None else "nothing was published"
        warnings.warn(
            f"a writer of {self._shown or 'a file object'} with {self.num_records} records was {how}; {result}: "
            f"{self._advice}",
            RuntimeWarning,
            stacklevel=3,
        )

    def __repr__(self) -> str:
        state, target = "closed" if self.closed else "open", self._shown or "a file object"
        return f"<anyrecord.Writer: {self.format} to {target}, {self.num_records} records, {state}>"


_ALIVE: weakref.WeakValueDictionary[int, Writer] = weakref.WeakValueDictionary()
"""Writers by their id."""


@atexit.register
def _discard_at_exit() -> None:
    """Discards writers that are still open when the interpreter exits. `__del__` runs too late to issue warnings."""
    # Discard all, then warn: a warning can raise an exception, which must not leave temporary files behind.
    # `valuerefs` makes its list in one step. Iterating over the writers would fail if a daemon thread created one.
    alive = [writer for reference in _ALIVE.valuerefs() if (writer := reference()) is not None]
    for writer in [writer for writer in alive if writer._discard()]:
        writer._warn_of_discard("still open at the end of the program, and discarded")


def warn_of_leftovers(path: str, problem: str | None) -> None:
    """Warns if a set was published, but files that it replaced are still on disk."""
    if problem is not None:
        text = f"{path} is published, but hidden files of the old set could not be deleted: {problem}"
        warnings.warn(text, RuntimeWarning, stacklevel=4)


def create(
    path: StrPath | BinaryIO,
    *,
    format: str | None = None,
    overwrite: bool = False,
    durable: bool = True,
    shards: SupportsIndex | None = None,
    shard_bytes: SupportsIndex | None = None,
    shard_records: SupportsIndex | None = None,
    num_records: SupportsIndex | None = None,
    threads: SupportsIndex | None = None,
    storage: Storage | None = None,
    codec: Literal["none", "snappy", "gzip", "zlib", "zstd", "brotli"] | None = None,
    level: SupportsIndex | None = None,
    window_log: SupportsIndex | None = None,
    group_size: SupportsIndex | None = None,
    transpose: bool | None = None,
    transpose_bucket_size: SupportsIndex | None = None,
    pad_to_block_boundary: bool | None = None,
    chunk_bytes: SupportsIndex | None = None,
) -> Writer:
    """Returns a writer of `path`. The suffix chooses the format, unless you pass `format`.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write(b"a record")
    ...     out.write_many([b"two", b"three"])
    >>> out.num_records, out.num_bytes
    (3, 16)

    `path` can also be a URL: the object appears when it is complete. And it can be a file object with `write`. Then you
    must pass `format`, and bytes are written to it at once.

    - `overwrite=True` replaces an existing file or set of shards when the new one is complete.
    - `durable=False` does not wait until the data is on disk. This is faster, but you can lose the file in a power
      failure.
    - `shards=16` writes records to 16 files in turn: `train-00000-of-00016.ffr` and so on. The shards are balanced
      whatever the number of records is. `shard_bytes` and `shard_records` fill one file after the other. All shards
      appear together. If the process is killed at that moment, `recover` finishes or undoes the publishing.
    - A process that is killed while it writes leaves a hidden temporary file. `create` warns of it. It is removed when
      the new writer has published its own file. `recover` removes it earlier, or saves the records in it.
    - `format`: can differ from the suffix, because readers detect the format from the bytes.
    - `num_records`: the number of records, if you know it. FFRecord is then written in one pass. For every format it
      is an error to write another number of records.
    - `threads`: how many threads encode in addition to the calling thread. With 0, only the calling thread encodes. By
      default there is one for each core if there is enough to compress. Worker processes share the cores, so there the
      default is 0. The bytes written do not depend on the number of threads.
    - `storage`: options for a URL, or an obstore store, as for `open`. `durable` has no meaning for URLs.

    Each format has its own options and refuses those of others:

    - array_record: `codec` (`"zstd"`, `"brotli"`, `"snappy"` or `"none"`), `level`, `window_log`, `group_size`,
      `transpose`, `transpose_bucket_size`, `pad_to_block_boundary`
    - recordio: `codec` (`"snappy"`, `"gzip"` or `"none"`), `level` (gzip), `chunk_bytes`
    - tfrecord: `codec` (`"none"`, `"gzip"` or `"zlib"`, chosen by `.tfrecord.gz` and `.tfrecord.zlib`), `level`
    - ffrecord: none
    """
    sharding = sharding_of(shards, shard_bytes, shard_records)
    target: Any = path
    to = Destination("")
    if isinstance(path, str | os.PathLike):
        to = destination(path, storage)
        refuse_folder_name(to.name)
        # The working directory can change before the file is published.
        target = to.name if to.is_url else os.path.abspath(to.name)
    elif isinstance(path, bytes):
        raise TypeError("pass the path as a str or a PathLike of str, not as bytes")
    name = target if isinstance(target, str) else None
    if name is None and sharding[0] != "one":
        raise ValueError("shards cannot be written to a file object; pass a path")
    creating = Creating(
        format=format_of(name) if format is None else format,
        overwrite=bool(overwrite),
        durable=bool(durable),
        threads=threads_option(threads),
        sharding=sharding,
        num_records=optional_number("num_records", num_records, 0, MOST_COUNT),
        storage=to.storage,
    )
    if to.is_url:
        check_objects(to, creating)
    elif name is not None:
        is_sharded = sharding[0] != "one"
        if is_sharded:
            refuse_unwritable(name, sharded=True)
        refuse_interrupted(name, sharded=is_sharded)
        if is_sharded and not overwrite:
            _refuse_existing(name)
    keywords = {
        "codec": codec,
        "level": level,
        "window_log": window_log,
        "group_size": group_size,
        "transpose": transpose,
        "transpose_bucket_size": transpose_bucket_size,
        "pad_to_block_boundary": pad_to_block_boundary,
        "chunk_bytes": chunk_bytes,
    }
    given = {keyword: value for keyword, value in keywords.items() if value is not None}
    leftovers = None if name is None or to.is_url else Leftovers([name])
    try:
        writer = new_writer(target, creating, given)
    except (FileNotFoundError, NotADirectoryError) as error:
        is_file = leftovers is not None
        raise (missing_folder(target, sharded=False) if is_file else None) or error from None
    writer._leftovers = leftovers
    return writer


def check_objects(to: Destination, creating: Creating) -> None:
    """Raises now what would fail at the end: an interrupted publish, or shards that must not be replaced."""
    is_sharded = creating.sharding[0] != "one"
    if is_sharded:
        refuse_web_set(to.name)
    refuse_interrupted_objects(to, sharded=is_sharded)
    if is_sharded and not creating.overwrite:
        found = existing_object_shards(to)
        refuse_existing(found, f"the {len(found)} shards there")


def new_writer(target: Any, creating: Creating, keywords: dict[str, Any]) -> Writer:
    """Returns a writer of a path, a URL or a file object. Checks the options of the format."""
    keywords = {keyword: _format_option(keyword, value) for keyword, value in keywords.items()}
    if isinstance(target, str) and creating.format == "tfrecord":
        implied = implied_codec(target)
        keywords = keywords if implied is None else {"codec": implied, **keywords}
    kind, number = creating.sharding
    if isinstance(target, str) and is_url(target) and kind in ("turns", "explicit"):
        creating = replace(creating, shard_urls=tuple(shard_paths(target, number)))
    writer = Writer(target, creating, keywords)
    writer._path = target if isinstance(target, str) else None
    writer._storage = creating.storage
    writer._overwrite, writer._sharding = creating.overwrite, creating.sharding
    _ALIVE[id(writer)] = writer
    return writer


def implied_codec(path: str) -> str | None:
    """The codec that the suffix of a TFRecord file chooses."""
    front = split_query(path)[0]
    implied = [codec for suffix, codec in _CODEC_OF_SUFFIX.items() if front.endswith(suffix)]
    return implied[0] if implied else None


def refuse_unknown_options(function: str, options: Mapping[str, object]) -> None:
    """Raises TypeError for a keyword that no format has, with Python's own message for unknown keywords."""
    for keyword in options:
        if keyword not in FormatOptions.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {keyword!r}")


def writable_formats() -> list[str]:
    """The formats that can be written. Each has a suffix."""
    with_suffix = {format for _, format in _core.suffixes()}
    return [format for format in _core.formats() if format in with_suffix]


def format_of(path: str | None) -> str:
    """Returns the format that the suffix of a path chooses."""
    if path is None:
        raise ValueError(f"a file object has no suffix: pass format=, one of {', '.join(writable_formats())}")
    format = _core.format_of_suffix(split_query(path)[0])
    if format is None:
        raise ValueError(f"{shown(path)} has no known suffix: pass format=, one of {', '.join(writable_formats())}")
    return format


def _format_option(keyword: str, value: Any) -> Any:
    """Checks the type of a format's option. The format itself checks the value."""
    if keyword in ("level", "window_log", "group_size", "transpose_bucket_size", "chunk_bytes"):
        return integer(keyword, value)
    if keyword in ("transpose", "pad_to_block_boundary") and not isinstance(value, bool):
        text = f"{keyword}={value!r} is not valid: it must be True or False, not {type(value).__name__}"
        raise TypeError(text)
    if keyword == "codec" and not isinstance(value, str):
        raise TypeError(f"codec= takes the name of a compression as a str, not {type(value).__name__}")
    return value


def threads_option(threads: SupportsIndex | None) -> int | None:
    """Checks how many threads encode. None: one for each core, or none in a worker process."""
    mark_worker_process()
    return optional_number("threads", threads, 0, MOST_THREADS)


def sharding_of(
    shards: SupportsIndex | None, shard_bytes: SupportsIndex | None, shard_records: SupportsIndex | None
) -> tuple[str, int]:
    """How records are divided among shards, and the number of shards, bytes or records."""
    given = {
        "shards": ("turns", shards),
        "shard_bytes": ("bytes", shard_bytes),
        "shard_records": ("records", shard_records),
    }
    chosen = [
        (kind, number)
        for keyword, (kind, value) in given.items()
        if (number := optional_number(keyword, value, 1, MOST_COUNT)) is not None
    ]
    if len(chosen) > 1:
        raise ValueError("shards, shard_bytes and shard_records exclude each other; pass one of them")
    return chosen[0] if chosen else ("one", 0)


def _refuse_existing(path: str) -> None:
    if old := existing_shards(path):
        text = f"{os.strerror(errno.EEXIST)}; pass overwrite=True to replace the {len(old)} shards there"
        raise FileExistsError(errno.EEXIST, text, old[0])
