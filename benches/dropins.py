"""The drop-ins as stores, called as their originals are in `peers`. ArrayRecord reads the files of the original."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from benches.peers import ArrayRecord
from benches.store import Store


class FfrecordDropIn(Store):
    """The drop-in for `ffrecord`. It returns arrays of numpy."""

    ways: ClassVar[tuple[str, ...]] = ("write", "single", "batch", "in order")
    package = "numpy"
    modules = ("anyrecord.compat.ffrecord",)

    def write(self, records: list[bytes]) -> None:
        from anyrecord.compat.ffrecord import FileWriter

        writer = FileWriter(str(self.path), len(records))
        for record in records:
            writer.write_one(record)
        writer.close()

    def open(self) -> None:
        from anyrecord.compat.ffrecord import FileReader

        self.reader = FileReader(str(self.path), check_data=True)

    def one(self, index: int) -> object:
        return self.reader.read_one(index)

    def batch(self, indices: Sequence[int]) -> object:
        return self.reader.read(indices)

    def in_order(self) -> None:
        for index in range(self.reader.n):
            self.reader.read_one(index)

    def close(self) -> None:
        self.reader.close()


class ArrayRecordDropIn(ArrayRecord):
    """The drop-in for `array_record`: the calls of the original, without its options for threads."""

    package = "anyrecord"

    def __init__(self, name: str, file: str, options: str, reads: str) -> None:
        super().__init__(name, file, options)
        self.reads = reads

    def write(self, records: list[bytes]) -> None:
        from anyrecord.compat.array_record.python.array_record_module import ArrayRecordWriter

        writer = ArrayRecordWriter(str(self.path), self.options)
        for record in records:
            writer.write(record)
        writer.close()

    def open(self) -> None:
        from anyrecord.compat.array_record.python.array_record_module import ArrayRecordReader

        other = self.path.with_name(self.reads)
        self.plain: Any = ArrayRecordReader(str(other if other.exists() else self.path))
        self.threaded: Any = self.plain


class ArrayRecordSourceDropIn(Store):
    """The data source of the drop-in for `array_record`."""

    ways = ("single", "batch")
    package = "anyrecord"

    def open(self) -> None:
        from anyrecord.compat.array_record.python.array_record_data_source import ArrayRecordDataSource

        self.source: Any = ArrayRecordDataSource([str(self.path)])

    def one(self, index: int) -> object:
        return self.source[index]

    def batch(self, indices: Sequence[int]) -> object:
        return self.source.__getitems__(indices)

    def close(self) -> None:
        self.source.__exit__(None, None, None)


class RecordioDropIn(Store):
    """The drop-in for `recordio`, uncompressed. A single record is a scanner of one record, with a shared index."""

    ways = ("write", "single", "in order")
    package = "anyrecord"

    def write(self, records: list[bytes]) -> None:
        from anyrecord.compat.recordio import NO_COMPRESSION, new_writer

        with open(self.path, "wb") as file:
            writer = new_writer(file, -1, NO_COMPRESSION)
            for record in records:
                writer.write(record)
            writer.close()

    def open(self) -> None:
        from anyrecord.compat.recordio import Index, Scanner

        self.scanner, self.index = Scanner, Index(str(self.path))

    def one(self, index: int) -> object:
        return self.scanner(str(self.path), index, 1, self.index).record()

    def in_order(self) -> None:
        scanner = self.scanner(str(self.path))
        while scanner.record() is not None:
            pass

    def close(self) -> None:
        self.index.close()


def dropins() -> list[Store]:
    """All drop-ins."""
    return [
        FfrecordDropIn("drop-in ffrecord", "dropin.ffr"),
        ArrayRecordDropIn(
            "drop-in array_record g1 none", "dropin none", "group_size:1,uncompressed", reads="original none"
        ),
        ArrayRecordSourceDropIn("drop-in array_record g1 none source", "dropin none"),
        ArrayRecordDropIn("drop-in array_record g1 zstd", "dropin zstd", "group_size:1,zstd:3", reads="original zstd"),
        ArrayRecordDropIn(
            "drop-in array_record g256 zstd", "dropin grouped", "group_size:256,zstd:3", reads="original grouped"
        ),
        RecordioDropIn("drop-in recordio none", "dropin.recordio"),
    ]
