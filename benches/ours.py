"""anyrecord as a store, in every format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import anyrecord

from benches.store import READS, WRITES, Store


class Anyrecord(Store):
    """One format of anyrecord with its options. `reads`: the file of another store, which is read if it exists."""

    ways = (*WRITES, *READS)
    package = "anyrecord"

    def __init__(
        self,
        name: str,
        file: str,
        *,
        reads: str | None = None,
        checksums: bool | Literal["once"] = True,
        **options: Any,
    ) -> None:
        super().__init__(name, file)
        self.reads = reads
        self.checksums = checksums
        self.options = options

    def writes(self) -> dict[str, Callable[[list[bytes]], object]]:
        if self.checksums is not True:
            return {}  # it reads the file of the store that checks every read
        return {"write": self.write, "write_many": self.write_many, "durable": partial(self.write, durable=True)}

    def _create(self, records: list[bytes], durable: bool) -> anyrecord.Writer:
        # FFRecord's own writer needs the number of samples, so this writer gets it, too.
        count = len(records) if self.file.endswith(".ffr") else None
        return anyrecord.create(self.path, durable=durable, num_records=count, **self.options)

    def write(self, records: list[bytes], durable: bool = False) -> None:
        with self._create(records, durable) as out:
            for record in records:
                out.write(record)

    def write_many(self, records: list[bytes]) -> None:
        with self._create(records, False) as out:
            out.write_many(records)

    def open(self) -> None:
        other = self.path.with_name(self.reads) if self.reads else self.path
        self.records = anyrecord.open(other if other.exists() else self.path, checksums=self.checksums)

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


def ours() -> list[Store]:
    """Every format. ArrayRecord reads the same file as the original."""
    return [
        Anyrecord("anyrecord ffrecord", "ours.ffr"),
        Anyrecord("anyrecord ffrecord unchecked", "ours.ffr", checksums=False),
        Anyrecord("anyrecord ffrecord once", "ours.ffr", checksums="once"),
        Anyrecord("anyrecord array g1 none", "none.array_record", reads="original none", group_size=1, codec="none"),
        Anyrecord("anyrecord array g1 none unchecked", "none.array_record", reads="original none", checksums=False),
        Anyrecord("anyrecord array g1 none once", "none.array_record", reads="original none", checksums="once"),
        Anyrecord(
            "anyrecord array g1 zstd", "zstd.array_record", reads="original zstd", group_size=1, codec="zstd", level=3
        ),
        Anyrecord(
            "anyrecord array g256 zstd",
            "grouped.array_record",
            reads="original grouped",
            group_size=256,
            codec="zstd",
            level=3,
        ),
        Anyrecord("anyrecord recordio none", "none.recordio", codec="none"),
        Anyrecord("anyrecord recordio snappy", "snappy.recordio", codec="snappy"),
        Anyrecord("anyrecord tfrecord", "ours.tfrecord"),
    ]
