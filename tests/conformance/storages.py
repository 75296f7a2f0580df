"""Where records can be when they are opened: one or several files, file objects, memory."""

from __future__ import annotations

import builtins
import io
import random
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyrecord
import pytest

from conformance.formats import Case


def _some_records() -> tuple[bytes, ...]:
    """A few of each kind: empty, one byte, mixed, equal ones, one above 64 KiB."""
    source = random.Random(20240601)
    mixed = [source.randbytes(source.randrange(2, 300)) for _ in range(30)]
    return (b"", b"x", *mixed[:12], b"twice", b"", source.randbytes(70_000), b"twice", *mixed[12:], b"\0", b"last", b"")


RECORDS = _some_records()
"""What every storage holds."""

CUTS = (0, 19, 19, 33, len(RECORDS))
"""Storages of several files hold the records between two cuts in each; one of the files has none."""

STORAGES = ("path", "plain", "direct", "file object", "BytesIO", "bytes", "glob", "list", "name@N")
"""The first one is a path; plain and direct are paths, too, read in that way."""


def write(path: Path | str, records: Iterable[bytes], case: Case, **keywords: Any) -> None:
    """Writes a file; nothing here survives a power cut, so nothing waits for the disk."""
    with anyrecord.create(path, durable=False, **case.options, **keywords) as out:
        out.write_many(records)


def write_and_fail(path: Any, records: Sequence[bytes], case: Case, **keywords: Any) -> anyrecord.Writer:
    """Writes records in a `with` block that ends in `KeyError("mine")`."""
    with (
        pytest.raises(KeyError, match="mine"),
        anyrecord.create(path, **case.options, **keywords) as out,  # durable, as it is by default
    ):
        _write_and_raise(out, records)
    return out


def _write_and_raise(out: anyrecord.Writer, records: Sequence[bytes]) -> None:
    out.write_many(records)
    raise KeyError("mine")


@dataclass(frozen=True)
class Stored:
    """`RECORDS` in one storage."""

    case: Case
    storage: str
    files: tuple[str, ...]
    """The names that the files should have when they are opened."""
    counts: tuple[int, ...]
    """How many records each of them holds."""
    folder: Path

    @property
    def is_of_paths(self) -> bool:
        return self.storage in {"path", "plain", "direct", "glob", "list", "name@N"}

    @property
    def io(self) -> dict[str, Any]:
        """The keyword that reads it in its way."""
        return {"io": self.storage} if self.storage in {"plain", "direct"} else {}

    @contextmanager
    def source(self) -> Iterator[Any]:
        """Something to pass to `open`."""
        path = self.folder / f"one{self.case.suffix}"
        match self.storage:
            case "path" | "plain" | "direct":
                yield path
            case "file object":
                with builtins.open(path, "rb") as file:
                    yield file
            case "BytesIO":
                yield io.BytesIO(path.read_bytes())
            case "bytes":
                yield path.read_bytes()
            case "glob":
                yield str(self.folder / f"part-?{self.case.suffix}")
            case "list":
                yield [Path(file) for file in self.files]
            case "name@N":
                yield str(self.folder / f"all{self.case.suffix}@{len(self.files)}")

    @contextmanager
    def opened(self, **keywords: Any) -> Iterator[anyrecord.Records]:
        """The records, opened anew."""
        with self.source() as source:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".* read through the page cache")  # where there is no direct reading
                records = anyrecord.open(source, **self.io, **keywords)
            with records:
                yield records

    def place(self, index: int) -> tuple[str, int]:
        """The file of a record, and its number there."""
        for file, count in zip(self.files, self.counts, strict=True):
            if index < count:
                return file, index
            index -= count
        raise IndexError(index)


def store(case: Case, storage: str, folder: Path) -> Stored:
    """Writes what the storage needs into an empty folder."""
    match storage:
        case "glob" | "list":
            numbers = range(len(CUTS) - 1)
            # The order of a list is the caller's own.
            order = numbers if storage == "glob" else reversed(numbers)
            files = tuple(str(folder / f"part-{name}{case.suffix}") for name in order)
            counts = tuple(CUTS[i + 1] - CUTS[i] for i in numbers)
            for i, file in enumerate(files):
                write(file, RECORDS[CUTS[i] : CUTS[i + 1]], case)
        case "name@N":
            each = 20
            counts = tuple(len(RECORDS[at : at + each]) for at in range(0, len(RECORDS), each))
            write(folder / f"all{case.suffix}", RECORDS, case, shard_records=each)
            n = len(counts)
            files = tuple(str(folder / f"all-{i:05}-of-{n:05}{case.suffix}") for i in range(n))
        case _:
            path = folder / f"one{case.suffix}"
            write(path, RECORDS, case)
            names = {"BytesIO": "<BytesIO>", "bytes": "<bytes>"}
            files, counts = (names.get(storage, str(path)),), (len(RECORDS),)
    return Stored(case, storage, files, counts, folder)
