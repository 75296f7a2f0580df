"""`Records`, a sequence of byte strings from one or many files, and `open`, which returns one."""

from __future__ import annotations

import io
import os
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self, SupportsIndex, TypeAlias, TypeVar, overload

from anyrecord import _core
from anyrecord._calls import add_note
from anyrecord._iteration import Batches, index_of, position_of
from anyrecord._locations import StrPath
from anyrecord._mapped import MappedRecords
from anyrecord._numbers import MOST_COUNT, optional_number, whole_number
from anyrecord._options import Checksums, Limits, OnError, OpenOptions, mark_worker_process, open_options
from anyrecord._packed import Packed
from anyrecord._paths import FileRange, expand
from anyrecord._places import Location, Skipped
from anyrecord._publishing import retry_until_consistent
from anyrecord._stats import Stats
from anyrecord._stores import Storage
from anyrecord.errors import ClosedError, FormatError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Records", "open"]

T = TypeVar("T")
Openable: TypeAlias = StrPath | Iterable[StrPath] | BinaryIO | bytes | bytearray | memoryview


def open(
    source: Openable,
    *,
    format: str | None = None,
    checksums: Checksums = True,
    table: Literal["memory", "disk"] = "memory",
    io: Literal["auto", "plain", "map", "direct"] = "auto",
    limits: Limits | None = None,
    cache_bytes: SupportsIndex = 64 << 20,
    threads: SupportsIndex | None = None,
    expected_records: SupportsIndex | None = None,
    on_error: OnError = "raise",
    max_errors: SupportsIndex | None = None,
    storage: Storage | None = None,
    cache: StrPath | None = None,
    cache_folder_bytes: SupportsIndex | None = None,
) -> Records:
    """Opens record files as one sequence of records.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> records = anyrecord.open("doc.ffr")
    >>> len(records), records[1], records[-1]
    (3, b'two', b'three')

    `source` is a path, a list of paths, a glob (`train-*.ffr`), a folder, `name@16` (the 16 shards of `name`),
    `file[1000:2000]` (a range of its records), a file object that can seek, or the bytes of a file. `open` reads the
    tables of all files, so damage in a table raises now. File descriptors are opened as needed.

    - `format`: by default, the format is detected from the bytes. `"riegeli"` is never detected: pass it.
    - `checksums=False`: check no hashes, neither of tables nor of records. Structure is still checked.
      `checksums="once"`: check the hash of each chunk when this process reads it for the first time, and again after
      the file was changed. Later epochs are as fast as without checks. See "Checksums" in `docs/tuning.md`.
    - `table="disk"`: keep the table of chunks in an unlinked temporary file, for files with very many chunks.
    - `io`: by default, local files are memory-mapped, with protection against truncation. Files on network and
      user-space file systems are read with plain reads. `"plain"` or `"map"` chooses one for all files. `"direct"`
      bypasses the page cache (Linux). Use it for batches of data that is larger than memory. You get a warning if the
      file system does not support it.
    - `limits`: limits on the sizes that a file may declare; see `Limits`.
    - `cache_bytes`: the size of the cache of decoded chunks. It holds chunks with several records. The last chunk is
      kept even if it is larger. 0 turns the cache off.
    - `threads`: how many threads decode a large batch, including the calling thread. With 0 or 1, only the calling
      thread decodes. The default is one for each core, at most 16. In a worker process (forked, or started by
      `multiprocessing`) the default is the calling thread only. A single record is always decoded by the calling
      thread.
    - `expected_records`: raise an error unless there are exactly this many records. In formats that do not store their
      end, this is the only way to notice that a file was truncated between two chunks.
    - `on_error`: what happens to a damaged record in iteration, batches and lists. `"raise"` raises its error.
      `"skip"` leaves it out. `"replace"` puts the next record that can be read in its place, in the order of the files;
      the first record follows the last. A function gets the error and returns the bytes to use, or raises. Each damaged
      record is reported once: by a `DamageWarning`, and in `records.skipped`. `records[i]` always raises. Damage in a
      table raises now, whatever `on_error` is.
    - `max_errors`: how many damaged records to go on after, with `on_error=`, in each process. One more raises its
      error.
    - `storage`: how to reach files that are not local. A dict has options of the store (`{"region": "eu-west-1"}`) and
      of reading (`{"max_requests": 16}`), by the names that the `object_store` crate and obstore have. An obstore store
      or an fsspec file system is used itself, and paths are relative to it.
    - `cache`: a local folder for what is read from URLs, so that it is fetched once. All processes of a host can share
      it. Local files are read as they are.
    - `cache_folder_bytes`: the most bytes that this folder takes on its disk. What was not used for longest is deleted.
      The default is 90 % of what is free.

    A path can be a URL: `s3://`, `gs://`, `az://`, `abfs://`, `abfss://`, `http://`, `https://`, `file://` or
    `memory://`. Credentials come from the environment, as for other programs of the provider, or from `storage`:

    >>> anyrecord.open("s3://bucket/train.ffr@16", storage={"region": "eu-west-1"})      # doctest: +SKIP
    """
    options = open_options(
        format=format,
        checksums=checksums,
        table=table,
        io=io,
        limits=limits,
        cache_bytes=cache_bytes,
        threads=threads,
        on_error=on_error,
        max_errors=max_errors,
        storage=storage,
        cache=cache,
        cache_folder_bytes=cache_folder_bytes,
    )
    expected = optional_number("expected_records", expected_records, 0, MOST_COUNT)
    records = _opened(lambda: _open_source(source, options), stacklevel=4)
    if expected is not None and expected != len(records):
        raise FormatError(
            f"wrong number of records in {_few(records.paths)}: expected {expected}, found {len(records)}",
            path=records.paths[0] if len(records.paths) == 1 else None,
            expected=str(expected),
            found=str(len(records)),
        )
    return records


def _is_of_empty_file(error: FormatError) -> bool:
    """Whether there is not one byte in the file, so that nothing can be saved."""
    is_nothing_at_0 = error.offset == 0 and error.found == "0 bytes"
    return is_nothing_at_0 or str(error).startswith(("the file is empty", "file is empty"))


def open_range(file: FileRange, options: OpenOptions) -> Records:
    """Opens one file that `expand` has found, or a part of it."""
    return _opened(lambda: _core.open_paths([(file.path, file.start, file.stop)], options), stacklevel=4)


def _opened(open_source: Callable[[], _core.Source], stacklevel: int) -> Records:
    """Opens records, and issues the warnings about their files."""
    try:
        records = Records(open_source())
    except FormatError as error:
        if not _is_of_empty_file(error):
            add_note(error, "anyrecord.salvage saves the records that can still be read from a damaged file")
        raise
    for path, warning in records._source.warnings():
        warnings.warn(f"{path} is {warning}", stacklevel=stacklevel - 1)
    if found := records._source.storage_warnings():  # one warning for all files: most are on the same file system
        few = _few([path for path, _ in found])
        warnings.warn(f"{few} {'is' if len(found) == 1 else 'are'} {found[0][1]}", stacklevel=stacklevel - 1)
    _warn_of_search(records, stacklevel)
    return records


def _warn_of_search(records: Records, stacklevel: int) -> None:
    """Says once that remote files had to be searched for records, which reads much of them."""
    counts = dict(records._source.stats())
    if files := counts["searched_files"]:
        name = records.paths[0].rpartition("/")[2]
        what = "a file of" if files == 1 else f"{files} files of together"
        warnings.warn(
            f"opening searched {what} {counts['searched_bytes']:,} bytes for records, because the format has no table; "
            "write side indexes into the same folder with anyrecord.build_index "
            f"({'.' + name + '.index'!r} for {name!r})",
            stacklevel=stacklevel,
        )


def _as_buffer(out: Any) -> Any:
    """Returns `out` as a buffer. A PyTorch tensor is not a buffer, but `tensor.numpy()` shares its memory."""
    to_numpy = getattr(out, "numpy", None) if type(out).__module__.partition(".")[0] == "torch" else None
    return out if to_numpy is None else to_numpy()


def _few(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{len(paths)} files ({paths[0]} is the first)"


def _open_source(source: Openable, options: OpenOptions) -> _core.Source:
    if isinstance(source, io.BytesIO):
        return _core.open_bytes(source.getvalue(), "<BytesIO>", options)
    if isinstance(source, bytes | bytearray | memoryview):
        return _core.open_bytes(bytes(source), "<bytes>", options)
    if isinstance(source, str | os.PathLike) or not hasattr(source, "read"):
        paths = list(source) if isinstance(source, Iterator) else source
        return retry_until_consistent(
            lambda: expand(paths, options),
            lambda files: _core.open_paths([(file.path, file.start, file.stop) for file in files], options),
        )
    return _core.open_object(source, options)


class Records(_core.Records, Sequence[bytes]):
    """A sequence of records. `anyrecord.open` returns one, and so does a slice of one.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many(b"%d" % i for i in range(100))
    >>> records = anyrecord.open("doc.ffr")
    >>> records[[7, 0, -1, 7]]                # one batched read; any order, repeats allowed
    [b'7', b'0', b'99', b'7']
    >>> part = records[10:20]                 # also a Records; reads nothing
    >>> len(part), part[0]
    (10, b'10')
    >>> [len(batch) for batch in records.batches(40)]
    [40, 40, 20]
    >>> records.map(int)[5]
    5

    You can read from many threads at once, and in forked children. You can pickle a `Records`, for example to send it
    to a spawned process. A pickle holds paths and options; the files are opened when you read from them.

    A notebook shows the first records in a table: how large they are, and what they are.
    """

    # `records[i]`, `len`, iteration, `__getitems__` and `_getitems` are in the extension type.

    @overload
    def batches(
        self,
        size: SupportsIndex,
        *,
        drop_last: bool = False,
        resume: Mapping[str, int] | None = None,
        packed: Literal[False] = False,
    ) -> Batches[list[bytes]]: ...
    @overload
    def batches(
        self,
        size: SupportsIndex,
        *,
        drop_last: bool = False,
        resume: Mapping[str, int] | None = None,
        packed: Literal[True],
    ) -> Batches[Packed]: ...
    @overload
    def batches(
        self,
        size: SupportsIndex,
        *,
        drop_last: bool = False,
        resume: Mapping[str, int] | None = None,
        packed: bool,
    ) -> Batches[Any]: ...
    def batches(
        self,
        size: SupportsIndex,
        *,
        drop_last: bool = False,
        resume: Mapping[str, int] | None = None,
        packed: bool = False,
    ) -> Batches[Any]:
        """Returns lists of `size` records each, in order. The last one can be shorter; `drop_last=True` leaves it out.

        With `packed=True`, each batch is a `Packed` instead of a list; see `read_packed`.

        The result has a length, and you can iterate over it again. Its iterators have a `state_dict()`. Pass such a
        state as `resume=` to continue from it. The batch size and `packed` can be others then.

        With `on_error="skip"`, damaged records are left out of their batch, which is shorter then. A batch of which no
        record is left is not delivered, so there can be fewer batches than `len` says.
        """
        return Batches(self, size, drop_last, resume, packed)

    def resume(self, state: Mapping[str, int]) -> _core.RecordsIterator:
        """Returns an iterator that continues at the record after the last one that was delivered.

        >>> import anyrecord
        >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
        ...     out.write_many(b"%d" % i for i in range(100))
        >>> part = anyrecord.open("doc.ffr").shuffle(seed=42, epoch=3).shard(0, of=4)
        >>> it = iter(part)
        >>> before = [next(it) for _ in range(10)]
        >>> state = it.state_dict()
        >>> before + list(part.resume(state)) == list(part)
        True

        `state` is what `state_dict()` of an iterator of the same view returned, in this process or in another one. The
        state of another view (other files, seed, epoch, shard or slice) raises ValueError.
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
        """Returns the same records in a shuffled order. It reads nothing.

        >>> import anyrecord
        >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
        ...     out.write_many(b"%d" % i for i in range(10))
        >>> records = anyrecord.open("doc.ffr")
        >>> b" ".join(records.shuffle(seed=0)), b" ".join(records.shuffle(seed=0, epoch=1))
        (b'0 5 9 3 6 4 1 2 8 7', b'5 3 8 6 7 9 1 2 4 0')

        Only `seed` and `epoch` decide the order. It is a permutation of all records: any record can come at any
        position. The permutation is computed and needs no buffer or table.

        With `window=`, neighbouring records stay closer together. Blocks of neighbouring records are permuted, and
        then records within each window of that many blocks. Use it if reading one record costs as much as reading its
        chunk: for chunks of many records, data that is not in the page cache, and object stores. If all chunks hold
        the same number of records, a block is a chunk. Else pass the number of records in a block as `block=`.
        """
        seed, epoch = whole_number("seed", seed), whole_number("epoch", epoch)
        if window is None and block is not None:
            raise ValueError("block= needs window=; pass window= too, the number of blocks that are shuffled together")
        window, block = optional_number("window", window, 1), optional_number("block", block, 1)
        order = _core.order_of(self._source, seed, epoch, window, block)
        return type(self)(_core.shuffle(self._source, order))

    def shard(self, rank: SupportsIndex, *, of: SupportsIndex) -> Self:
        """Returns every `of`-th record, beginning at position `rank`. It divides by record, never by file.

        The shards of all ranks together hold each record exactly once. Their lengths differ by at most 1.
        """
        of = whole_number("of", of, 1)
        rank = whole_number("rank", rank, 0, of - 1)
        return self[rank::of]

    def map(self, function: Callable[[bytes], T]) -> MappedRecords[T]:
        """Returns the results of a function on each record. The function runs when a record is read."""
        if not callable(function):
            raise TypeError(f"map needs a function, not {type(function).__name__}")
        return MappedRecords(self, function)

    def read_into(self, out: Any, indices: Iterable[SupportsIndex]) -> array[int]:
        """Reads records into your buffer, one after the other. Returns where each record begins, and the end.

        >>> import anyrecord
        >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
        ...     out.write_many([b"one", b"two", b"three"])
        >>> buffer = bytearray(100)
        >>> offsets = anyrecord.open("doc.ffr").read_into(buffer, [2, 0])
        >>> bytes(buffer[offsets[0]:offsets[1]]), bytes(buffer[offsets[1]:offsets[2]])
        (b'three', b'one')

        `out` is any writable buffer of bytes: a bytearray, a memoryview, a uint8 array, or a uint8 tensor of PyTorch on
        the CPU. Record `indices[k]` is `out[offsets[k]:offsets[k + 1]]`. Several threads copy large batches directly
        from the file into the buffer.

        With `on_error="replace"` or a function, what replaces a damaged record is in its place. With
        `on_error="skip"`, a damaged record raises its error, because each index has a place in the result.
        """
        offsets = array("Q")
        offsets.frombytes(self._read_into(_as_buffer(out), indices))
        return offsets

    def read_packed(self, indices: Iterable[SupportsIndex] | slice) -> Packed:
        """Reads records into one new block of memory, without a Python object for each.

        >>> import anyrecord
        >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
        ...     out.write_many([b"one", b"two", b"three"])
        >>> data, offsets = anyrecord.open("doc.ffr").read_packed([2, 0])
        >>> bytes(data[offsets[0]:offsets[1]]), bytes(data[offsets[1]:offsets[2]])
        (b'three', b'one')

        `indices` are as for `records[indices]`; a slice is read at once, too. See `Packed` for what the result offers.
        What happens to damaged records is as for `records[indices]`: with `on_error="skip"` there are fewer records.
        `Limits.decoded_bytes` limits the size.
        """
        return Packed(self._read_packed(indices))

    def read_arrow(self, indices: Iterable[SupportsIndex] | slice) -> pyarrow.Array:
        """Reads records as an Arrow array of type `binary`, or `large_binary` if there are more than 2 GiB.

        >>> import anyrecord
        >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
        ...     out.write_many([b"one", b"two", b"three"])
        >>> anyrecord.open("doc.ffr").read_arrow([2, 0]).to_pylist()           # doctest: +SKIP
        [b'three', b'one']

        This needs pyarrow: the extra `arrow`. Other Arrow libraries take a `Packed` directly.
        """
        return self.read_packed(indices).arrow()

    def sizes(self) -> array[int] | None:
        """Returns the size of each record in bytes. None if the sizes are known only after decoding.

        numpy can use the array without a copy: `numpy.asarray(records.sizes())`.
        """
        sizes = self._sizes()
        if sizes is None:
            return None
        found = array("Q")
        found.frombytes(sizes)
        return found

    def locate(self, index: SupportsIndex) -> Location:
        """Returns where a record is stored: its file, the number of its chunk, and its row in the chunk."""
        return Location(*self._locate(index))

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Returns the number of the first record that equals `value`. Raises ValueError if there is none."""
        return index_of(self, value, start, stop)

    @property
    def paths(self) -> list[str]:
        """The files, in order."""
        return [file[0] for file in self._source.files()]

    @property
    def skipped(self) -> list[Skipped]:
        """The damaged records that this process has left out or replaced, in the order in which it met them.

        >>> import anyrecord, pathlib, warnings
        >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
        ...     out.write_many([b"one", b"two", b"three"])
        >>> data = bytearray(pathlib.Path("doc.ffr").read_bytes())
        >>> data[-6] ^= 1                                           # the last byte of b"two"
        >>> records = anyrecord.open(bytes(data), on_error="skip")
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     list(records), len(records)
        ([b'one', b'three'], 3)
        >>> [(skipped.path, skipped.record) for skipped in records.skipped]
        [('<bytes>', 1)]
        >>> print(caught[0].category.__name__)
        DamageWarning

        All views of these records have the same list. It holds the first 100,000.
        """
        return [Skipped(*skipped) for skipped in self._source.skipped()]

    def stats(self) -> Stats:
        """Returns what reading these records has cost this process so far: requests, bytes, retries, time waited.

        >>> import anyrecord
        >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
        ...     out.write_many([b"one", b"two", b"three"])
        >>> records = anyrecord.open("doc.ffr")
        >>> before = records.stats()
        >>> records[0], records[1]
        (b'one', b'two')
        >>> records.stats().requests - before.requests, records.stats().bytes - before.bytes
        (2, 6)

        All views of these records count together. To measure an epoch, subtract the numbers from before it. Reading the
        counters is cheap.
        """
        counts = dict(self._source.stats())
        store = self._source.options.store
        if store is not None:
            calls, size, seconds = store.costs()
            counts["requests"] += calls
            counts["bytes"] += size
            counts["waited_us"] += int(seconds * 1e6)
        return Stats._of(counts)

    @property
    def _leaves_out(self) -> bool:
        """Whether iteration and lists leave damaged records out."""
        return self._source.options.on_error == "skip"

    def _describe(self, position: SupportsIndex) -> str:
        """Describes the record at a position, for error messages."""
        position, path, record = self._place(position)
        view = "" if record == position else f", at position {position} of the view"
        return f"record {record} of {path}{view}"

    @property
    def format(self) -> str:
        """The format of the files, or `"mixed"` if they have different formats."""
        formats = {file[3] for file in self._source.files()}
        return formats.pop() if len(formats) == 1 else "mixed"

    def __reversed__(self) -> Iterator[bytes]:
        return iter(self[::-1])

    def __add__(self, other: Records) -> Records:
        from anyrecord._combine import concat

        return concat([self, other]) if isinstance(other, Records) else NotImplemented

    def close(self) -> None:
        """Closes the files and frees the caches. This also closes all slices and other views of these records."""
        self._source.close()

    @property
    def closed(self) -> bool:
        """Whether the records were closed."""
        return self._source.closed

    def __enter__(self) -> Self:
        if self.closed:
            raise ClosedError("these records are closed; open them again")
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        # Frameworks compare the repr when they restore a checkpoint. So it must be the same in every process and on
        # every host that has the same files under the same paths.
        files = self._source.files()
        named = [(absolute or name, *rest) for name, *rest, absolute in files]
        identity = repr((named, self._source.view_numbers()))
        digest = _core.sha1(identity.encode(errors="surrogatepass"))
        plural = "" if len(files) == 1 else "s"
        return f"<anyrecord.Records: {len(self)} records, {len(files)} {self.format} file{plural}, sha1 {digest}>"

    def _repr_html_(self) -> str:
        from anyrecord._notebook import records_html

        return records_html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        saved = []
        for name, first, count, format, absolute in self._source.files():
            if absolute is None:
                raise TypeError(f"records of {name} cannot be pickled; to pickle records, open them from a path")
            saved.append((absolute, first, count, format))
        source = self._source
        return _restore, (type(self), saved, source.view_numbers(), source.options, source.origins())


def _restore(
    cls: type[Records],
    files: list[tuple[str, int, int, str]],
    view: list[int],
    options: OpenOptions,
    origins: Sequence[int] = (),
) -> Records:
    mark_worker_process()
    return cls(_core.restore(files, view, options, list(origins)))
