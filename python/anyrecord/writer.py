"""`create`: records in, one file or many shards out. The final names appear only when everything is whole."""

from __future__ import annotations

import errno
import os
import warnings
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self, SupportsIndex, TypeAlias, TypedDict

from anyrecord import _core
from anyrecord._numbers import MOST_COUNT, MOST_THREADS, integer, optional_number
from anyrecord.errors import ClosedError
from anyrecord.options import tell_if_worker
from anyrecord.paths import existing_shards, shard_paths

__all__ = ["Writer", "create"]

StrPath: TypeAlias = str | os.PathLike[str]

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
    `num_bytes` tell what was written so far.
    """

    # `write`, `write_many`, `num_records`, `num_bytes`, `format` and `closed` are in the extension type.

    _path: str | None
    _is_sharded: bool
    _overwrite: bool

    def close(self) -> None:
        """Finishes the file and makes it appear under its name. A second call does nothing."""
        if self._published:
            return
        self._publish_sealed()

    def _publish_sealed(self) -> list[str]:
        """Publishes, sealing first where that was not done; returns the names."""
        count = self._seal()
        if not self._is_sharded or self._path is None:
            names = [] if self._path is None else [self._path]
            self._publish([], [])
        else:
            names = shard_paths(self._path, count)
            old = existing_shards(self._path) if self._overwrite else []
            self._publish(names, old)
        self._published = True
        return names

    def discard(self) -> None:
        """Throws away what was written: nothing is published, and an existing file stays as it was.

        An error once the file is published: it cannot be taken back.
        """
        if self._published:
            raise ValueError(f"{self._path or 'the output'} is published already; delete it to be rid of it")
        self._discard()

    _published = False

    def __enter__(self) -> Self:
        if self.closed:
            raise ClosedError("this writer is closed; create a new one")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._discard()
        elif not self._published and not self._is_discarded:
            self.close()

    @property
    def _is_discarded(self) -> bool:
        return self.closed and not self._published

    def __del__(self) -> None:
        # A writer in a forked child belongs to its parent; the core leaves that one alone.
        if self._pid == os.getpid() and not self._published and not self.closed and self._discard():
            warnings.warn(
                f"a writer of {self._path or 'a file object'} was dropped before it was closed; nothing was published",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    _pid = 0

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return (
            f"<anyrecord.Writer: {self.format} to {self._path or 'a file object'}, {self.num_records} records, {state}>"
        )


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

    - `overwrite=True` replaces an existing file, at the moment the new one is whole.
    - `durable=False` does not wait for the disk: faster, but a power cut may lose the file.
    - `shards=16` deals records out to 16 files in turn, `train-00000-of-00016.ffr` and so on, balanced without
      knowing the count. `shard_bytes` and `shard_records` fill one file after the other.
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
    target: Any = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if isinstance(target, bytes):
        raise TypeError("a path is a str or a PathLike of one, not bytes")
    if isinstance(target, str):
        # The file is published where it was asked for, whatever the working directory is by then.
        target = os.path.abspath(target)
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
    if name is not None and sharding[0] != "one" and not overwrite:
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
    writer._overwrite, writer._pid = creating.overwrite, os.getpid()
    writer._is_sharded = creating.sharding[0] != "one"
    return writer


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
    tell_if_worker()
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
