"""The base class of a store: a library and format that keeps records in a file, to write and read in several ways."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

READS = ("single", "batch", "in order", "all")
"""Ways of reading, in microseconds a record."""
WRITES = ("write", "write_many", "durable")
"""Ways of writing, in MB of records a second: one call for each record, one call for all, and waiting for the disk."""


class Store:
    """One store. `ways` lists the ways that it supports."""

    ways: ClassVar[tuple[str, ...]] = ("write", *READS)
    package: ClassVar[str]
    """The package that must be installed."""
    modules: ClassVar[tuple[str, ...]] = ()
    """What `open` and the ways of reading import."""

    def __init__(self, name: str, file: str) -> None:
        self.name = name
        self.file = file

    def settle(self, folder: Path) -> None:
        """Sets the folder for its files."""
        self.path = folder / self.file

    def is_here(self) -> bool:
        """Whether its package is installed."""
        return importlib.util.find_spec(self.package) is not None

    def load(self) -> None:
        """Imports what it needs, so that a measurement in a new process has no imports in it."""
        for module in self.modules:
            importlib.import_module(module)

    def writes(self) -> dict[str, Callable[[list[bytes]], object]]:
        """Its ways of writing, by name. Empty for a store that reads the file of another store."""
        return {"write": self.write} if "write" in self.ways else {}

    def remove(self) -> None:
        """Deletes its files, so every round writes a new file."""
        if self.path.is_dir():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)

    def stored_bytes(self) -> int:
        """The size of its files."""
        files = [f for f in self.path.rglob("*") if f.is_file()] if self.path.is_dir() else [self.path]
        return sum(os.stat(f).st_size for f in files)

    def write(self, records: list[bytes]) -> None:
        """Writes the records, with one call for each if the store has such a call. It does not wait for the disk."""
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
        """Closes what `open` opened."""
