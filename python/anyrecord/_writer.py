"""`create`: records in, one file or many shards out. The final names appear only when everything is whole."""

from __future__ import annotations

import atexit
import errno
import os
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self, SupportsIndex, TypedDict

from anyrecord import _core
from anyrecord._locations import StrPath
from anyrecord._numbers import MOST_COUNT, MOST_THREADS, integer, optional_number
from anyrecord._options import mark_worker_process
from anyrecord._paths import existing_shards, shard_paths
from anyrecord._targets import refuse_folder_name, refuse_interrupted, refuse_unwritable, target_path
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
    """The keywords of `create` that are the same for all formats, checked; the attributes are what the core reads."""

    format: str
    overwrite: bool
    durable: bool
    threads: int | None
    """None: as many as there are cores, where that pays."""
    sharding: tuple[str, int]
    num_records: int | None
    tally: bool = False
    """Whether what is written is added up, for a comparison with the file."""


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
    """Writes records. Made by `anyrecord.create`; use it in a `with` block.

    Leaving the block publishes the file; leaving it by an exception publishes nothing. `num_records` and
    `num_bytes` tell what was written so far. A writer that is neither closed nor discarded publishes nothing, and a
    RuntimeWarning says so.
    """

    # `write`, `write_many`, `num_records`, `num_bytes`, `format` and `closed` are in the extension type.

    _path: str | None = None
    _sharding: tuple[str, int]
    _overwrite: bool
    _names: list[str] | None = None
    """What was published; None before."""
    _advice: str = "use a with block, or call close()"
    """What to do so that this writer is not discarded."""

    @property
    def paths(self) -> list[str]:
        """The files that this writer has published, or will publish when it is closed.

        The names of shards hold their number. With `shard_bytes` and `shard_records` it is known at the end, so the
        list is empty until the writer is closed. It is empty for a file object, and after `discard` or an error.

        >>> import anyrecord, os
        >>> with anyrecord.create("train.ffr", shards=2, overwrite=True) as out:
        ...     out.write_many([b"one", b"two"])
        >>> [os.path.basename(path) for path in out.paths]
        ['train-00000-of-00002.ffr', 'train-00001-of-00002.ffr']
        """
        if self._names is not None:
            return list(self._names)
        if self._path is None or self.closed:
            return []
        kind, number = self._sharding
        if kind == "one":
            return [self._path]
        return shard_paths(self._path, number) if kind in ("turns", "told") else []

    def close(self) -> None:
        """Finishes the file and makes it appear under its name. A second call does nothing."""
        if self._names is None:
            self._publish_sealed()

    def _publish_sealed(self) -> None:
        """Publishes, sealing first where that was not done."""
        count = self._seal()
        if self._path is None:
            self._publish()
            self._names = []
        elif self._sharding[0] == "one":
            refuse_interrupted(self._path, sharded=False)
            self._publish()
            self._names = [self._path]
        else:
            refuse_interrupted(self._path, sharded=True)
            names, path = shard_paths(self._path, count), self._path
            journal = _core.journal_path(path, False)
            left = _core.publish_set([self], journal, self._overwrite, (names, lambda: existing_shards(path)))
            self._names = names
            warn_of_leftovers(path, left)

    def discard(self) -> None:
        """Throws away what was written: nothing is published, and an existing file stays as it was.

        An error once the file is published: it cannot be taken back.
        """
        if self._names is not None:
            raise ValueError(f"{self._path or 'the output'} is published already; delete the file to remove it")
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
    def _is_discarded(self) -> bool:
        return self.closed and self._names is None

    def __del__(self) -> None:
        # A writer in a forked child belongs to its parent; the core leaves that one alone and returns False.
        if self._discard():
            self._warn_of_discard("dropped before it was closed")

    def _warn_of_discard(self, how: str) -> None:
        whole = "what was written there is incomplete" if self._path is None else "nothing was published"
        warnings.warn(
            f"a writer of {self._path or 'a file object'} with {self.num_records} records was {how}; {whole}: "
            f"{self._advice}",
            RuntimeWarning,
            stacklevel=3,
        )

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return (
            f"<anyrecord.Writer: {self.format} to {self._path or 'a file object'}, {self.num_records} records, {state}>"
        )


_ALIVE: weakref.WeakSet[Writer] = weakref.WeakSet()


@atexit.register
def _give_up_at_exit() -> None:
    """For writers that are still there when the interpreter ends. Later, when they are dropped, nobody may be told."""
    # First discard all, then warn: a warning may be an exception, and no temporary file shall stay because of it.
    for writer in [writer for writer in list(_ALIVE) if writer._discard()]:
        writer._warn_of_discard("still open at the end of the program, and discarded")


def warn_of_leftovers(path: str, problem: str | None) -> None:
    """Warns if a set was published, and something that it replaced is still on disk."""
    if problem is not None:
        text = f"{path} is published, but hidden files of the old set are left: {problem}"
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
    codec: Literal["none", "snappy", "gzip", "zlib", "zstd", "brotli"] | None = None,
    level: SupportsIndex | None = None,
    window_log: SupportsIndex | None = None,
    group_size: SupportsIndex | None = None,
    transpose: bool | None = None,
    transpose_bucket_size: SupportsIndex | None = None,
    pad_to_block_boundary: bool | None = None,
    chunk_bytes: SupportsIndex | None = None,
) -> Writer:
    """A writer of `path`, whose suffix chooses the format unless `format` does.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write(b"a record")
    ...     out.write_many([b"two", b"three"])
    >>> out.num_records, out.num_bytes
    (3, 16)

    `path` may also be a file object with `write`; then `format` is needed, and bytes appear there as they come.

    - `overwrite=True` replaces an existing file, or a set of shards, at the moment the new one is whole.
    - `durable=False` does not wait for the disk: faster, but a power cut may lose the file.
    - `shards=16` deals records out to 16 files in turn, `train-00000-of-00016.ffr` and so on, balanced without
      knowing the count. `shard_bytes` and `shard_records` fill one file after the other. All shards appear together;
      if the process is killed while they do, `recover` finishes or undoes that.
    - `format`: may differ from what the suffix says, since readers look at the bytes.
    - `num_records`: how many there will be, if you know. FFRecord then writes in one pass; for every format it is
      an error to write another number.
    - `threads`: how many threads encode besides the calling one; 0 means the calling thread alone. By default there is
      one for each core once there is enough to compress, but none in worker processes, which share the cores. The
      bytes written are the same for any number.

    Options of one format, refused by the others:

    - array_record: `codec` (`"zstd"`, `"brotli"`, `"snappy"` or `"none"`), `level`, `window_log`, `group_size`,
      `transpose`, `transpose_bucket_size`, `pad_to_block_boundary`
    - recordio: `codec` (`"snappy"`, `"gzip"` or `"none"`), `level` (gzip), `chunk_bytes`
    - tfrecord: `codec` (`"none"`, `"gzip"` or `"zlib"`, chosen by `.tfrecord.gz` and `.tfrecord.zlib`), `level`
    - ffrecord: none
    """
    sharding = sharding_of(shards, shard_bytes, shard_records)
    target: Any = path
    if isinstance(path, str | os.PathLike):
        target = target_path(path)
        refuse_folder_name(target)
        # The file is published where it was asked for, whatever the working directory is by then.
        target = os.path.abspath(target)
    elif isinstance(path, bytes):
        raise TypeError("a path is a str or a PathLike of one, not bytes")
    name = target if isinstance(target, str) else None
    if name is None and sharding[0] != "one":
        raise ValueError("shards need a path, not a file object")
    creating = Creating(
        format=format_of(name) if format is None else format,
        overwrite=bool(overwrite),
        durable=bool(durable),
        threads=threads_option(threads),
        sharding=sharding,
        num_records=optional_number("num_records", num_records, 0, MOST_COUNT),
    )
    if name is not None:
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
    return new_writer(target, creating, given)


def new_writer(target: Any, creating: Creating, keywords: dict[str, Any]) -> Writer:
    """A writer of a path or a file object, with options that are checked."""
    keywords = {keyword: _format_option(keyword, value) for keyword, value in keywords.items()}
    if isinstance(target, str) and creating.format == "tfrecord":
        implied = [codec for suffix, codec in _CODEC_OF_SUFFIX.items() if target.endswith(suffix)]
        keywords = {"codec": implied[0], **keywords} if implied else keywords
    writer = Writer(target, creating, keywords)
    writer._path = target if isinstance(target, str) else None
    writer._overwrite, writer._sharding = creating.overwrite, creating.sharding
    _ALIVE.add(writer)
    return writer


def refuse_unknown_options(function: str, options: Mapping[str, object]) -> None:
    """Raises TypeError for a keyword that no format has, as Python does for a function that names its keywords."""
    for keyword in options:
        if keyword not in FormatOptions.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {keyword!r}")


def format_of(path: str | None) -> str:
    """The format that a path's suffix chooses."""
    if path is None:
        raise ValueError(f"a file object has no suffix: pass format=, one of {', '.join(_core.formats())}")
    format = _core.format_of_suffix(path)
    if format is None:
        raise ValueError(f"{path} has no known suffix: pass format=, one of {', '.join(_core.formats())}")
    return format


def _format_option(keyword: str, value: Any) -> Any:
    """The value of an option of one format, of the right type; what it may be is that format's to check."""
    if keyword in ("level", "window_log", "group_size", "transpose_bucket_size", "chunk_bytes"):
        return integer(keyword, value)
    if keyword in ("transpose", "pad_to_block_boundary") and not isinstance(value, bool):
        text = f"{keyword}={value!r} is not valid: it must be True or False, not {type(value).__name__}"
        raise TypeError(text)
    if keyword == "codec" and not isinstance(value, str):
        raise TypeError(f"codec= takes the name of a compression, not {type(value).__name__}")
    return value


def threads_option(threads: SupportsIndex | None) -> int | None:
    """How many threads encode. None: what there are cores for, which is none in a worker process."""
    mark_worker_process()
    return optional_number("threads", threads, 0, MOST_THREADS)


def sharding_of(
    shards: SupportsIndex | None, shard_bytes: SupportsIndex | None, shard_records: SupportsIndex | None
) -> tuple[str, int]:
    """How records are dealt out, and the number that belongs to it."""
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
        raise ValueError("shards, shard_bytes and shard_records exclude each other")
    return chosen[0] if chosen else ("one", 0)


def _refuse_existing(path: str) -> None:
    if old := existing_shards(path):
        text = f"{os.strerror(errno.EEXIST)}; pass overwrite=True to replace the {len(old)} shards there"
        raise FileExistsError(errno.EEXIST, text, old[0])
