"""`Records`: a sequence of byte strings over one file or ten thousand, and `open`, which makes one."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal, NamedTuple, Self, SupportsIndex, TypeAlias, TypeVar

from anyrecord import _core
from anyrecord._iteration import Batches, index_of, position_of
from anyrecord._locations import StrPath
from anyrecord._mapped import MappedRecords
from anyrecord._numbers import MOST_COUNT, optional_number, whole_number
from anyrecord._options import Limits, OpenOptions, open_options, mark_worker_process
from anyrecord._paths import expand
from anyrecord._publishing import retry_until_consistent
from anyrecord.errors import ClosedError, FormatError

__all__ = ["Location", "Records", "open"]

T = TypeVar("T")
Openable: TypeAlias = StrPath | Iterable[StrPath] | BinaryIO | bytes | bytearray | memoryview


class Location(NamedTuple):
    """Where a record is stored."""

    path: str
    """The file."""
    chunk: int
    """The chunk's number in the file."""
    row: int
    """The record's number in the chunk."""


def open(
    source: Openable,
    *,
    format: str | None = None,
    checksums: bool = True,
    table: Literal["memory", "disk"] = "memory",
    io: Literal["auto", "plain", "map", "direct"] = "auto",
    limits: Limits | None = None,
    cache_bytes: SupportsIndex = 64 << 20,
    threads: SupportsIndex | None = None,
    expected_records: SupportsIndex | None = None,
) -> Records:
    """Opens record files as one sequence.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> records = anyrecord.open("doc.ffr")
    >>> len(records), records[1], records[-1]
    (3, b'two', b'three')

    `source` is a path, a list of paths, a glob (`train-*.ffr`), a folder, `name@16` (the 16 shards of `name`),
    `file[1000:2000]` (a range of its records), a file object that can seek, or the bytes of a file. The tables of
    all files are read at once, so damage there is an error now; descriptors are opened as needed.

    - `format`: normally found out from the bytes. `"riegeli"` is only ever read when asked for.
    - `checksums=False` skips every hash, of tables as well as of records; structure is still checked.
    - `table="disk"` keeps the table of chunks in an unlinked temporary file, for files of very many chunks.
    - `io`: local files are mapped into memory, with protection against truncation. Network and user-space file systems
      are read by plain reads. `"plain"` and `"map"` choose one of them. `"direct"` reads past the page cache (Linux):
      for data that is larger than memory, in batches; a warning says so where the file system has no such reads.
    - `limits`: caps on what a file may claim, see `Limits`.
    - `cache_bytes`: how much to keep of decoded chunks that hold several records. The last chunk is kept even if it is
      larger; with 0 none is.
    - `threads`: how many threads decode a large batch, the calling one among them; 0 and 1 mean the calling thread
      alone. By default there are as many as cores, at most 16; in a worker process (forked, or started by
      `multiprocessing`) only the calling one. One record is never handed to another thread.
    - `expected_records`: an error unless there are exactly so many; the only way to notice a cut between chunks
      in formats that store no end.
    """
    options = open_options(
        format=format,
        checksums=checksums,
        table=table,
        io=io,
        limits=limits,
        cache_bytes=cache_bytes,
        threads=threads,
    )
    expected = optional_number("expected_records", expected_records, 0, MOST_COUNT)
    records = Records(_open_source(source, options))
    for path, warning in records._source.warnings():
        warnings.warn(f"{path} is {warning}", stacklevel=2)
    if found := records._source.storage_warnings():  # one for all: of a thousand files, all lie in the same place
        few = _few([path for path, _ in found])
        warnings.warn(f"{few} {'is' if len(found) == 1 else 'are'} {found[0][1]}", stacklevel=2)
    if expected is not None and expected != len(records):
        raise FormatError(
            f"wrong number of records in {_few(records.paths)}: expected {expected}, found {len(records)}",
            path=records.paths[0] if len(records.paths) == 1 else None,
            expected=str(expected),
            found=str(len(records)),
        )
    return records


def _as_buffer(out: Any) -> Any:
    """PyTorch's tensors are no buffers themselves, but lend their memory to numpy."""
    lend = getattr(out, "numpy", None) if type(out).__module__.partition(".")[0] == "torch" else None
    return out if lend is None else lend()


def _few(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{len(paths)} files from {paths[0]} on"


def _open_source(source: Openable, options: OpenOptions) -> _core.Source:
    if isinstance(source, io.BytesIO):
        return _core.open_bytes(source.getvalue(), "<BytesIO>", options)
    if isinstance(source, bytes | bytearray | memoryview):
        return _core.open_bytes(bytes(source), "<bytes>", options)
    if isinstance(source, str | os.PathLike) or not hasattr(source, "read"):
        paths = list(source) if isinstance(source, Iterator) else source
        return retry_until_consistent(
            lambda: expand(paths),
            lambda files: _core.open_paths([(file.path, file.start, file.stop) for file in files], options),
        )
    return _core.open_object(source, options)


class Records(_core.Records, Sequence[bytes]):
    """A sequence of records. Made by `anyrecord.open`; a slice is one again.

    Reading costs the same from any thread, and a `Records` can be used from many at once, in forked children, and
    by pickle in spawned ones: a pickle holds paths and options, and files are opened when they are read from.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(100))
    >>> records = anyrecord.open("doc.ffr")
    >>> records[[7, 0, -1, 7]]                # one batched read; any order, repeats allowed
    [b'7', b'0', b'99', b'7']
    >>> part = records[10:20]                 # a Records again; nothing is read
    >>> len(part), part[0]
    (10, b'10')
    >>> [len(batch) for batch in records.batches(40)]
    [40, 40, 20]
    >>> records.map(int)[5]
    5
    """

    # `records[i]`, `len`, iteration, `__getitems__` and `_getitems` are in the extension type.

    def batches(
        self, size: SupportsIndex, *, drop_last: bool = False, resume: Mapping[str, int] | None = None
    ) -> Batches[bytes]:
        """Lists of `size` records each, in order; the last one may be shorter, or is left out.

        The result has a length and can be iterated over again. Its iterators have a `state_dict()`; `resume=`
        continues from one, also with another size.
        """
        return Batches(self, size, drop_last, resume)

    def resume(self, state: Mapping[str, int]) -> _core.RecordsIterator:
        """An iterator that continues at the very next record.

        `state` is what `state_dict()` of an iterator of the same view returned, here or in another process. The state
        of another view (other files, seed, epoch, shard or slice) is a ValueError.

        >>> import anyrecord
        >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
        ...     out.write_many(b"%d" % i for i in range(100))
        >>> part = anyrecord.open("doc.ffr").shuffle(seed=42, epoch=3).shard(0, of=4)
        >>> it = iter(part)
        >>> before = [next(it) for _ in range(10)]
        >>> state = it.state_dict()
        >>> before + list(part.resume(state)) == list(part)
        True
        """
        return self._iterate(position_of(state, len(self), self._fingerprint))

    def shuffle(
        self,
        seed: SupportsIndex,
        epoch: SupportsIndex = 0,
        *,
        window: SupportsIndex | None = None,
        block: SupportsIndex | None = None,
    ) -> Self:
        """The same records in an order that `seed` and `epoch` decide, and nothing else; nothing is read.

        Any record may come up at any position: a permutation of all records, computed, without a buffer or a table.

        >>> import anyrecord
        >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
        ...     out.write_many(b"%d" % i for i in range(10))
        >>> records = anyrecord.open("doc.ffr")
        >>> b" ".join(records.shuffle(seed=0)), b" ".join(records.shuffle(seed=0, epoch=1))
        (b'0 5 9 3 6 4 1 2 8 7', b'5 3 8 6 7 9 1 2 4 0')

        With `window=`, blocks of neighbouring records are permuted, and records within each window of so many blocks:
        for chunks of many records, cold disks and object stores, where a record alone costs as much as its chunk. A
        block is a chunk of the files where all hold the same number of records, else say how many in `block=`.
        """
        seed, epoch = whole_number("seed", seed), whole_number("epoch", epoch)
        if window is None and block is not None:
            raise ValueError("block= goes with window=, the number of blocks that are mixed together")
        window, block = optional_number("window", window, 1), optional_number("block", block, 1)
        order = _core.order_of(self._source, seed, epoch, window, block)
        return type(self)(_core.shuffle(self._source, order))

    def shard(self, rank: SupportsIndex, *, of: SupportsIndex) -> Self:
        """Every `of`-th record, from the one at position `rank` on: by record, never by file.

        The shards of all ranks are all records, each once, and their lengths differ by at most 1.
        """
        of = whole_number("of", of, 1)
        rank = whole_number("rank", rank, 0, of - 1)
        return self[rank::of]

    def map(self, function: Callable[[bytes], T]) -> MappedRecords[T]:
        """The results of a function on each record, computed when they are read."""
        if not callable(function):
            raise TypeError(f"map needs a function, not {type(function).__name__}")
        return MappedRecords(self, function)

    def read_into(self, out: Any, indices: Iterable[SupportsIndex]) -> array[int]:
        """Reads records one after the other into a buffer of yours; returns where each begins, and the end.

        `out` is any writable buffer of bytes: a bytearray, a memoryview, a uint8 array, a uint8 tensor of PyTorch on
        the CPU. Record `k` of the ones asked for is `out[offsets[k]:offsets[k + 1]]`. Large batches are copied by
        several threads, straight from the file into their places.

        >>> import anyrecord
        >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
        ...     out.write_many([b"one", b"two", b"three"])
        >>> buffer = bytearray(100)
        >>> offsets = anyrecord.open("doc.ffr").read_into(buffer, [2, 0])
        >>> bytes(buffer[offsets[0]:offsets[1]]), bytes(buffer[offsets[1]:offsets[2]])
        (b'three', b'one')
        """
        offsets = array("Q")
        offsets.frombytes(self._read_into(_as_buffer(out), indices))
        return offsets

    def sizes(self) -> array[int] | None:
        """The size of each record in bytes, or None where the files tell only by decoding.

        The array can be used by numpy without a copy: `numpy.asarray(records.sizes())`.
        """
        sizes = self._sizes()
        if sizes is None:
            return None
        found = array("Q")
        found.frombytes(sizes)
        return found

    def locate(self, index: SupportsIndex) -> Location:
        """Where a record is stored: its file, its chunk's number there, its row in the chunk."""
        return Location(*self._locate(index))

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """The number of the first record that equals `value`; a ValueError if there is none."""
        return index_of(self, value, start, stop)

    @property
    def paths(self) -> list[str]:
        """The files, in order."""
        return [file[0] for file in self._source.files()]

    def _describe(self, position: SupportsIndex) -> str:
        """Which record is at a position, in words."""
        position, path, record = self._place(position)
        view = "" if record == position else f", at position {position} of the view"
        return f"record {record} of {path}{view}"

    @property
    def format(self) -> str:
        """The format of the files; `"mixed"` if there are several."""
        formats = {file[3] for file in self._source.files()}
        return formats.pop() if len(formats) == 1 else "mixed"

    def __add__(self, other: Records) -> Records:
        from anyrecord._combine import concat

        return concat([self, other]) if isinstance(other, Records) else NotImplemented

    def close(self) -> None:
        """Gives descriptors and caches back. Slices of these records are closed with them."""
        self._source.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._source.closed

    def __enter__(self) -> Self:
        if self.closed:
            raise ClosedError("these records are closed; open them again")
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        # The same in every process and on every host that has the same files under the same paths: frameworks
        # compare it when they restore a checkpoint.
        files = self._source.files()
        named = [(absolute or name, *rest) for name, *rest, absolute in files]
        told = repr((named, self._source.view_numbers()))
        digest = hashlib.sha1(told.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()
        plural = "" if len(files) == 1 else "s"
        return f"<anyrecord.Records: {len(self)} records, {len(files)} {self.format} file{plural}, sha1 {digest}>"

    def __reduce__(self) -> tuple[Any, ...]:
        saved = []
        for name, first, count, format, absolute in self._source.files():
            if absolute is None:
                raise TypeError(f"records of {name} cannot be pickled: only those of paths can, which are opened again")
            saved.append((absolute, first, count, format))
        return _restore, (type(self), saved, self._source.view_numbers(), self._source.options)


def _restore(
    cls: type[Records], files: list[tuple[str, int, int, str]], view: list[int], options: OpenOptions
) -> Records:
    mark_worker_process()
    return cls(_core.restore(files, view, options))
