"""Ourselves and the peers behind one small interface: write the records, then read them in each way."""

from __future__ import annotations

import array
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import anyrecord


class Store:
    """One way of storing records. Nothing waits for the disk: the peers never do."""

    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / type(self).__name__)

    def write(self, records: list[bytes]) -> None:
        raise NotImplementedError

    def open(self) -> None:
        raise NotImplementedError

    def one(self, index: int) -> object:
        raise NotImplementedError

    def batch(self, indices: Sequence[int]) -> object:
        raise NotImplementedError

    def in_order(self) -> None:
        raise NotImplementedError

    def all(self) -> object:
        raise NotImplementedError

    def close(self) -> None:
        """Gives back what `open` took."""


class MmapSlice(Store):
    """A Python loop slicing a map, with the offsets in an array: what anybody could write, and no checksums."""

    name = "mmap slice"

    def write(self, records: list[bytes]) -> None:
        with open(self.path, "wb") as out:
            out.writelines(records)
        self.ends = array.array("Q", [0])
        for record in records:
            self.ends.append(self.ends[-1] + len(record))

    def open(self) -> None:
        with open(self.path, "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

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


class Anyrecord(Store):
    """Ourselves, checksums on."""

    suffix: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    counted: ClassVar[bool] = False

    def write(self, records: list[bytes]) -> None:
        path = self.path + self.suffix
        count = len(records) if self.counted else None
        with anyrecord.create(path, durable=False, overwrite=True, num_records=count, **self.options) as out:
            out.write_many(records)

    def open(self) -> None:
        self.records = anyrecord.open(self.path + self.suffix)

    def one(self, index: int) -> bytes:
        return self.records[index]

    def batch(self, indices: Sequence[int]) -> list[bytes]:
        return self.records[indices]

    def in_order(self) -> None:
        for _ in self.records:
            pass

    def all(self) -> list[bytes]:
        return list(self.records)

    def close(self) -> None:
        self.records.close()


class OurFfRecord(Anyrecord):
    """FFRecord; the number of samples is given, as the original's writer demands."""

    name = "anyrecord ffrecord"
    suffix = ".ffr"
    counted = True


class OurTfRecord(Anyrecord):
    """TFRecord as it is; there is no other reader that finds a record by its number."""

    name = "anyrecord tfrecord"
    suffix = ".tfrecord"


class OurRecordIo(Anyrecord):
    """RecordIO with the original's own settings: snappy, chunks of 32 MiB."""

    name = "anyrecord recordio"
    suffix = ".recordio"


class OriginalArrayRecord(Store):
    """The real `array_record` at its best: no read-ahead threads, one record by seek and read."""

    options: ClassVar[str]

    def write(self, records: list[bytes]) -> None:
        from array_record.python.array_record_module import ArrayRecordWriter

        writer = ArrayRecordWriter(self.path, self.options)
        for record in records:
            writer.write(record)
        writer.close()

    def open(self) -> None:
        from array_record.python.array_record_module import ArrayRecordReader

        self.plain = ArrayRecordReader(self.path, "readahead_buffer_size:0,max_parallelism:0")
        self.threaded = ArrayRecordReader(self.path)

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
        self.plain.close()
        self.threaded.close()


class OurArrayRecord(Anyrecord):
    """ArrayRecord: reads the very file that the original wrote, if it wrote one."""

    suffix = ".array_record"
    original: ClassVar[type[OriginalArrayRecord]]

    def open(self) -> None:
        theirs = Path(self.path).with_name(self.original.__name__)
        self.records = anyrecord.open(theirs if theirs.exists() else self.path + self.suffix)


class OriginalPlain(OriginalArrayRecord):
    """One uncompressed record in a chunk."""

    name = "array_record g1 none"
    options = "group_size:1,uncompressed"


class OurPlain(OurArrayRecord):
    """One uncompressed record in a chunk."""

    name = "anyrecord g1 none"
    original = OriginalPlain
    options: ClassVar[dict[str, Any]] = {"group_size": 1, "codec": "none"}


class OriginalZstd(OriginalArrayRecord):
    """One record in a chunk, zstd."""

    name = "array_record g1 zstd"
    options = "group_size:1,zstd:3"


class OurZstd(OurArrayRecord):
    """One record in a chunk, zstd."""

    name = "anyrecord g1 zstd"
    original = OriginalZstd
    options: ClassVar[dict[str, Any]] = {"group_size": 1, "codec": "zstd", "level": 3}


class OriginalGrouped(OriginalArrayRecord):
    """256 records in a chunk, zstd."""

    name = "array_record g256 zstd"
    options = "group_size:256,zstd:3"


class OurGrouped(OurArrayRecord):
    """256 records in a chunk, zstd."""

    name = "anyrecord g256 zstd"
    original = OriginalGrouped
    options: ClassVar[dict[str, Any]] = {"group_size": 256, "codec": "zstd", "level": 3}
