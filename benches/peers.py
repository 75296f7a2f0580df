"""The other libraries: those in the registry that store records in files. Each is called in its fastest way."""

from __future__ import annotations

import array
import mmap
import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from benches.store import Store


class MmapSlice(Store):
    """A plain Python loop that slices a memory map, with the offsets in an array. It has no checksums.

    The offsets are in a second file, for other processes.
    """

    package = "mmap"

    def write(self, records: list[bytes]) -> None:
        with open(self.path, "wb") as out:
            for record in records:
                out.write(record)
        ends = array.array("Q", [0])
        for record in records:
            ends.append(ends[-1] + len(record))
        self.path.with_suffix(".ends").write_bytes(ends)

    def open(self) -> None:
        with open(self.path, "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.ends = array.array("Q", self.path.with_suffix(".ends").read_bytes())

    def one(self, index: int) -> bytes:
        return self.map[self.ends[index] : self.ends[index + 1]]

    def batch(self, indices: Sequence[int]) -> list[bytes]:
        content, ends = self.map, self.ends
        return [content[ends[i] : ends[i + 1]] for i in indices]

    def in_order(self) -> None:
        content, begin = self.map, 0
        for end in self.ends[1:]:
            content[begin:end]
            begin = end

    def all(self) -> list[bytes]:
        return self.batch(range(len(self.ends) - 1))

    def close(self) -> None:
        self.map.close()


class ArrayRecord(Store):
    """The real `array_record` with its fastest options.

    Single reads and reads in order use a reader without read-ahead threads, with seek and read. Batches and `all` use
    its parallel reader.
    """

    package = "array_record"
    modules = ("array_record.python.array_record_module",)

    def __init__(self, name: str, file: str, options: str) -> None:
        super().__init__(name, file)
        self.options = options

    def write(self, records: list[bytes]) -> None:
        from array_record.python.array_record_module import ArrayRecordWriter

        writer = ArrayRecordWriter(str(self.path), self.options)
        for record in records:
            writer.write(record)
        writer.close()

    def open(self) -> None:
        """Does nothing: a reader is opened when it is used, because one way of reading needs only one of them."""

    @cached_property
    def plain(self) -> Any:
        from array_record.python.array_record_module import ArrayRecordReader

        return ArrayRecordReader(str(self.path), "readahead_buffer_size:0,max_parallelism:0")

    @cached_property
    def threaded(self) -> Any:
        from array_record.python.array_record_module import ArrayRecordReader

        return ArrayRecordReader(str(self.path))

    def one(self, index: int) -> bytes:
        self.plain.seek(index)
        found: bytes = self.plain.read()
        return found

    def batch(self, indices: Sequence[int]) -> object:
        return self.threaded.read(indices)

    def in_order(self) -> None:
        self.plain.seek(0)
        for _ in range(self.plain.num_records()):
            self.plain.read()

    def all(self) -> object:
        return self.threaded.read_all()

    def close(self) -> None:
        for reader in ("plain", "threaded"):
            if reader in self.__dict__:
                self.__dict__.pop(reader).close()


class ArrayRecordSource(Store):
    """The data source of the real `array_record`, which Grain uses. It reads the file that `ArrayRecord` wrote."""

    ways = ("single", "batch")
    package = "array_record"
    modules = ("array_record.python.array_record_data_source",)

    def open(self) -> None:
        from array_record.python.array_record_data_source import ArrayRecordDataSource

        self.source: Any = ArrayRecordDataSource([str(self.path)])

    def one(self, index: int) -> object:
        return self.source[index]

    def batch(self, indices: Sequence[int]) -> object:
        return self.source.__getitems__(indices)

    def close(self) -> None:
        self.source.__exit__(None, None, None)


class Bagz(Store):
    """bagz. The suffix of the file decides whether it compresses. It has no checksums."""

    package = "bagz"
    modules = ("bagz",)

    def write(self, records: list[bytes]) -> None:
        import bagz

        with bagz.Writer(str(self.path)) as out:
            for record in records:
                out.write(record)

    def open(self) -> None:
        import bagz

        self.reader: Any = bagz.Reader(str(self.path))

    def one(self, index: int) -> object:
        return self.reader[index]

    def batch(self, indices: Sequence[int]) -> object:
        return self.reader.read_indices(indices)

    def in_order(self) -> None:
        for _ in self.reader:
            pass

    def all(self) -> object:
        return self.reader.read()

    def close(self) -> None:
        del self.reader


class Lmdb(Store):
    """LMDB with the record numbers as keys, and one transaction for all records. It has no checksums.

    `readahead`: whether the system may read more than was asked for.
    """

    package = "lmdb"
    modules = ("lmdb",)

    def __init__(self, name: str, file: str, *, readahead: bool = False) -> None:
        super().__init__(name, file)
        self.readahead = readahead

    def write(self, records: list[bytes]) -> None:
        import lmdb

        environment: Any = lmdb.open(str(self.path), map_size=1 << 36, sync=False)
        with environment.begin(write=True) as transaction:
            for number, record in enumerate(records):
                transaction.put(number.to_bytes(8, "big"), record, append=True)
        environment.close()

    def stored_bytes(self) -> int:
        return (self.path / "data.mdb").stat().st_blocks * 512

    def open(self) -> None:
        import lmdb

        self.environment: Any = lmdb.open(str(self.path), readonly=True, lock=False, readahead=self.readahead)
        self.transaction = self.environment.begin()

    def one(self, index: int) -> object:
        return self.transaction.get(index.to_bytes(8, "big"))

    def batch(self, indices: Sequence[int]) -> list[object]:
        get = self.transaction.get
        return [get(index.to_bytes(8, "big")) for index in indices]

    def in_order(self) -> None:
        for _ in self.transaction.cursor().iternext(keys=False, values=True):
            pass

    def all(self) -> list[object]:
        return list(self.transaction.cursor().iternext(keys=False, values=True))

    def close(self) -> None:
        self.transaction.abort()
        self.environment.close()


class TfRecord(Store):
    """The `tfrecord` package, which needs no TensorFlow. It reads only in order and checks no checksums."""

    ways = ("write", "in order")
    package = "tfrecord"
    modules = ("tfrecord.writer", "tfrecord.reader")

    def write(self, records: list[bytes]) -> None:
        from tfrecord.writer import TFRecordWriter

        checksum = TFRecordWriter.masked_crc
        with open(self.path, "wb") as out:
            for record in records:
                length = struct.pack("<Q", len(record))
                out.write(length)
                out.write(checksum(length))
                out.write(record)
                out.write(checksum(record))

    def open(self) -> None:
        """Does nothing: every pass opens the file itself."""

    def in_order(self) -> None:
        from tfrecord.reader import tfrecord_iterator

        for _ in tfrecord_iterator(str(self.path)):
            pass


def peers() -> list[Store]:
    """All other libraries."""
    return [
        MmapSlice("mmap slice", "raw"),
        ArrayRecord("array_record g1 none", "original none", "group_size:1,uncompressed"),
        ArrayRecordSource("array_record g1 none source", "original none"),
        ArrayRecord("array_record g1 zstd", "original zstd", "group_size:1,zstd:3"),
        ArrayRecordSource("array_record g1 zstd source", "original zstd"),
        ArrayRecord("array_record g256 zstd", "original grouped", "group_size:256,zstd:3"),
        Bagz("bagz raw", "raw.bag"),
        Bagz("bagz zstd", "zstd.bagz"),
        Lmdb("lmdb", "lmdb"),
        TfRecord("tfrecord", "peer.tfrecord"),
    ]
