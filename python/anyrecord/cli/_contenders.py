"""Who is measured by `anyrecord bench`: anyrecord, and the original library of a format where it is installed.

Each is used in its fastest way: what can read ranges or batches also does so for records in order. Where a record of
an original is, is looked up before the clock runs. That is in favour of the originals, which read one file each.
"""

from __future__ import annotations

import contextlib
import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module, metadata
from itertools import accumulate, repeat
from typing import Any, NamedTuple

import anyrecord
from anyrecord._locations import is_url

__all__ = ["Contender", "Missing", "Ours", "Part", "original_of", "parts_of"]


MOST = 2048
"""The most records of a batch whose size is ours to choose."""


class Part(NamedTuple):
    """The records of one file."""

    path: str
    start: int
    """The number of the first record in the file."""
    length: int
    """How many records."""


def parts_of(records: anyrecord.Records) -> list[Part]:
    """The files that records are in."""
    return [Part(file[4] or file[0], file[1], file[2]) for file in records._source.files()]


class Missing(NamedTuple):
    """Why there is no original to compare with."""

    name: str
    why: str


class Contender:
    """A library that reads records. Each measurement has one of its own, which is opened and closed."""

    name: str
    version: str
    ways: frozenset[str] = frozenset({"in order", "single", "batch"})
    """The ways to read that it has."""

    def close(self) -> None:
        """Closes all files."""

    def in_order(self, count: int) -> Sequence[Callable[[], object]]:
        """Functions that read the first records one after the other. If there are several, the fastest counts."""
        raise NotImplementedError

    def prepared(self, way: str, keys: Sequence[Any]) -> Sequence[Any]:
        """Numbers of records, or lists of numbers, in the form that `read` takes."""
        return keys

    def read(self, way: str) -> Callable[[Any], object]:
        """The function that reads one record, or one batch."""
        raise NotImplementedError

    def records(self, indices: Sequence[int]) -> list[bytes]:
        """Some records, to compare them with those of others."""
        raise NotImplementedError


class Ours(Contender):
    """anyrecord."""

    name, version = "anyrecord", anyrecord.__version__

    def __init__(self, open: Callable[[], anyrecord.Records], most: int = MOST) -> None:
        self._records, self._sizes = open(), _sizes(most)

    def close(self) -> None:
        self._records.close()

    def in_order(self, count: int) -> Sequence[Callable[[], object]]:
        part = self._records[:count]

        def read() -> None:
            for _ in part:
                pass

        def read_batches(size: int) -> None:
            for _ in part.batches(size):
                pass

        return [read, *(partial(read_batches, size) for size in self._sizes)]

    def read(self, way: str) -> Callable[[Any], object]:
        return self._records.__getitem__

    def records(self, indices: Sequence[int]) -> list[bytes]:
        return self._records[list(indices)]


class _ByFile(Contender):
    """An original that opens one file at a time."""

    def __init__(self, parts: Sequence[Part], most: int = MOST) -> None:
        self._parts, self._sizes = parts, _sizes(most)
        self._ends = list(accumulate(part.length for part in parts))
        self._files: list[Any] = []
        try:
            for part in parts:
                self._files.append(self._open(part.path))
        except BaseException:
            self.close()
            raise

    def _open(self, path: str) -> Any:
        raise NotImplementedError

    def _place(self, index: int) -> tuple[int, int]:
        """The number of the file, and the number of the record in it."""
        file = bisect_right(self._ends, index)
        return file, index - (self._ends[file] - self._parts[file].length) + self._parts[file].start

    def prepared(self, way: str, keys: Sequence[Any]) -> Sequence[Any]:
        if way == "single":
            return [(self._files[file], record) for file, record in map(self._place, keys)]
        batches = []
        for batch in keys:
            by_file: dict[int, list[int]] = {}
            for file, record in map(self._place, batch):
                by_file.setdefault(file, []).append(record)
            batches.append([(self._files[file], records) for file, records in by_file.items()])
        return batches

    def _first(self, count: int) -> Iterator[tuple[Any, Part, int]]:
        """The files of the first records, and how many of each."""
        for file, part in zip(self._files, self._parts, strict=True):
            if count <= 0:
                return
            yield file, part, min(count, part.length)
            count -= part.length

    def _ranges(self, count: int, size: int) -> Iterator[tuple[Any, int, int]]:
        """The first records in ranges of a size: the file, and the numbers of the first record and the one after."""
        for file, part, length in self._first(count):
            end = part.start + length
            for begin in range(part.start, end, size):
                yield file, begin, min(begin + size, end)


class _ArrayRecord(_ByFile):
    """`array_record`. Single reads have no read-ahead; batches are read by its threads."""

    name = "array_record"

    def _open(self, path: str) -> Any:
        reader = import_module("array_record.python.array_record_module").ArrayRecordReader
        return reader(path, "readahead_buffer_size:0,max_parallelism:0"), reader(path)

    def close(self) -> None:
        for plain, threaded in self._files:
            plain.close()
            threaded.close()

    def in_order(self, count: int) -> Sequence[Callable[[], object]]:
        def read(which: int) -> None:
            for readers, part, length in self._first(count):
                reader = readers[which]
                reader.seek(part.start)
                for _ in repeat(None, length):
                    reader.read()

        def read_ranges(which: int, size: int) -> None:
            for readers, begin, end in self._ranges(count, size):
                readers[which].read(begin, end)

        ranges = [partial(read_ranges, which, size) for which in (0, 1) for size in self._sizes]
        return [partial(read, 0), partial(read, 1), *ranges]

    def read(self, way: str) -> Callable[[Any], object]:
        def one(key: Any) -> None:
            (plain, _), record = key
            plain.seek(record)
            plain.read()

        def batch(key: Any) -> None:
            for (_, threaded), records in key:
                threaded.read(records)

        return one if way == "single" else batch

    def records(self, indices: Sequence[int]) -> list[bytes]:
        return [self._files[file][1].read([record])[0] for file, record in map(self._place, indices)]


class _FFRecord(_ByFile):
    """`ffrecord`."""

    name = "ffrecord"

    def _open(self, path: str) -> Any:
        return import_module("ffrecord").FileReader([path], check_data=True)

    def close(self) -> None:
        for reader in self._files:
            reader.close()

    def in_order(self, count: int) -> Sequence[Callable[[], object]]:
        def read() -> None:
            for reader, part, length in self._first(count):
                for record in range(part.start, part.start + length):
                    reader.read_one(record)

        def read_ranges(size: int) -> None:
            for reader, begin, end in self._ranges(count, size):
                reader.read([*range(begin, end)])

        return [read, *(partial(read_ranges, size) for size in self._sizes)]

    def read(self, way: str) -> Callable[[Any], object]:
        def batch(key: Any) -> None:
            for reader, records in key:
                reader.read(records)

        return (lambda key: key[0].read_one(key[1])) if way == "single" else batch

    def records(self, indices: Sequence[int]) -> list[bytes]:
        return [bytes(self._files[file].read_one(record)) for file, record in map(self._place, indices)]


class _RecordIO(_ByFile):
    """`recordio`. It reads ranges in order, so a batch of random records is as many scanners."""

    name, ways = "recordio", frozenset({"in order", "single"})

    def _open(self, path: str) -> Any:
        return path, import_module("recordio").Index(path)

    def in_order(self, count: int) -> Sequence[Callable[[], object]]:
        scanner = import_module("recordio").Scanner

        def read() -> None:
            for (path, index), part, length in self._first(count):
                scan = scanner(path, part.start, length, index)
                while scan.record() is not None:
                    pass

        return [read]

    def read(self, way: str) -> Callable[[Any], object]:
        scanner = import_module("recordio").Scanner

        def one(key: Any) -> None:
            (path, index), record = key
            scanner(path, record, 1, index).record()

        return one

    def records(self, indices: Sequence[int]) -> list[bytes]:
        scanner, found = import_module("recordio").Scanner, []
        for file, record in map(self._place, indices):
            path, index = self._files[file]
            found.append(scanner(path, record, 1, index).record())
        return found


class _TFRecord(Contender):
    """TensorFlow, which reads TFRecord files in order only.

    It delivers batches, which is many times as fast as one record at a time. Which size is best depends on the records,
    so several are tried, each with read-ahead and without.
    """

    name, ways = "tensorflow", frozenset({"in order"})

    def __init__(self, parts: Sequence[Part], codec: str | None = None, most: int = MOST) -> None:
        self._parts, self._sizes = parts, _sizes(most)
        self._tensorflow = _import_quietly("tensorflow")
        self._codec = {"gzip": "GZIP", "zlib": "ZLIB"}.get(codec or "", "")

    def _dataset(self, count: int) -> Any:
        paths = [part.path for part in self._parts]
        return self._tensorflow.data.TFRecordDataset(paths, self._codec, buffer_size=8 << 20).take(count)

    def in_order(self, count: int) -> Sequence[Callable[[], object]]:
        def reading(data: Any) -> Callable[[], object]:
            batches = data.as_numpy_iterator()  # it takes some milliseconds to make one

            def read() -> None:
                for _ in batches:
                    pass

            return read

        return [reading(data) for data in self._batched(count)]

    def _batched(self, count: int) -> list[Any]:
        made = [self._dataset(count).batch(size) for size in self._sizes]
        return [data for batches in made for data in (batches, batches.prefetch(2))]

    def records(self, indices: Sequence[int]) -> list[bytes]:
        wanted = set(indices)
        read = enumerate(self._dataset(max(indices) + 1).as_numpy_iterator())
        found = {number: bytes(record) for number, record in read if number in wanted}
        return [found[index] for index in indices]


def _sizes(most: int) -> list[int]:
    """The sizes of batches that are tried where records are read in order."""
    return sorted({min(size, most) for size in (256, MOST)})


def _import_quietly(name: str) -> Any:
    """Imports a library that writes to standard error while it does so."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        return import_module(name)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


_ORIGINALS: dict[str, tuple[type[Contender], str, tuple[str, ...]]] = {
    "array_record": (_ArrayRecord, "array_record.python.array_record_module", ("array_record",)),
    "ffrecord": (_FFRecord, "ffrecord", ("ffrecord",)),
    "recordio": (_RecordIO, "recordio", ("pyrecordio", "recordio")),
    "tfrecord": (_TFRecord, "tensorflow", ("tensorflow", "tensorflow-cpu", "tensorflow-intel")),
}
"""For each format: the class here, the module that is imported, and the packages that it can come from."""


def original_of(
    format: str, parts: Sequence[Part], codec: str | None, most: int = MOST
) -> tuple[Contender, Callable[[], Contender]] | Missing:
    """The library that the format comes from: one that is open, and a function that opens others. Or why not.

    No batch that the library chooses itself has more than `most` records.
    """
    if format not in _ORIGINALS:
        return Missing("the original", f"there is none for {format} files")
    kind, module, packages = _ORIGINALS[format]
    version = next((found for package in packages if (found := _version(package))), None)
    if version is None:
        return Missing(kind.name, "not installed")
    if any(is_url(part.path) for part in parts):
        return Missing(kind.name, "not compared: it cannot read URLs in the same way")
    if kind is _TFRecord and any(part.start for part in parts):
        return Missing(kind.name, "not compared: it cannot begin at a record")

    def opened() -> Contender:
        made = _TFRecord(parts, codec, most) if kind is _TFRecord else kind(parts, most)  # type: ignore[call-arg]
        made.version = version
        return made

    try:
        found = _import_quietly(module)
        if _is_ours(found):
            return Missing(kind.name, "not compared: ANYRECORD_COMPAT has replaced it by anyrecord")
        return opened(), opened
    except Exception as error:  # whatever an original raises
        return Missing(kind.name, f"not compared: {type(error).__name__}: {error}")


def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _is_ours(module: Any) -> bool:
    return str(getattr(module, "__name__", "")).startswith("anyrecord.")
