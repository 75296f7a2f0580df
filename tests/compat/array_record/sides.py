"""The original and our drop-in side by side: the same call on both, the same outcome."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Side:
    """The modules of one of the two, and a folder to write in."""

    module: Any
    """`array_record_module`"""
    sources: Any
    """`array_record_data_source`"""
    folder: Path

    def path(self, name: str = "f.array_record") -> str:
        return str(self.folder / name)

    def write(self, records: list[bytes], options: str = "group_size:1", name: str = "f.array_record") -> str:
        """Writes a file; returns its path."""
        path = self.path(name)
        writer = self.module.ArrayRecordWriter(path, options)
        for record in records:
            writer.write(record)
        writer.close()
        return path

    def reader(self, records: list[bytes] | None = None, options: str = "") -> Any:
        """A reader of ten records, or of these."""
        found = self.module.ArrayRecordReader(self.write(numbers(10) if records is None else records), options)
        assert found.ok()
        return found

    def source(self, *counts: int) -> Any:
        """A data source over files of so many records each."""
        return self.sources.ArrayRecordDataSource(self.files(*counts))

    def files(self, *counts: int) -> list[str]:
        """Files of so many records each."""
        return [
            self.write([b"%d.%d" % (file, i) for i in range(count)], name=f"f{file}.array_record")
            for file, count in enumerate(counts)
        ]


Case: TypeAlias = Callable[[Side], Any]


def numbers(count: int) -> list[bytes]:
    return [b"record %d" % i for i in range(count)]


def side(package: str, folder: Path) -> Side:
    """`array_record` is the original, `anyrecord.compat.array_record` is ours."""
    folder.mkdir(exist_ok=True)
    names = ("array_record_module", "array_record_data_source")
    module, sources = (importlib.import_module(f"{package}.python.{name}") for name in names)
    return Side(module, sources, folder)


def ours(folder: Path) -> Side:
    return side("anyrecord.compat.array_record", folder / "ours")


def theirs(folder: Path) -> Side:
    return side("array_record", folder / "theirs")


def attempt(case: Case, side: Side) -> tuple[Any, Exception | None]:
    """What a call returns, or what it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # cases that end with an open writer
        try:
            return case(side), None
        except Exception as error:
            if isinstance(error, AttributeError):
                error.obj = None  # a writer must not stay alive in what it raised
            return None, error.with_traceback(None)


def assert_same(case: Case, folder: Path, *, texts: bool = False) -> None:
    """Both return the same, or raise the same; ours may be of more kinds than theirs."""
    value, error = attempt(case, ours(folder))
    expected, raised = attempt(case, theirs(folder))
    if raised is None:
        assert error is None, f"ours raises {error!r}, theirs returns {expected!r}"
        assert value == expected
        assert type(value) is type(expected)
    else:
        assert isinstance(error, type(raised)), f"ours: {error or value!r}, theirs: {raised!r}"
        if texts:
            assert str(error) == str(raised)
