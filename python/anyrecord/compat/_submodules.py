"""Lazy submodules: `package.submodule` works without an import of the submodule, which is imported on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType

__all__ = ["imported_when_used"]


def imported_when_used(package: str, *submodules: str) -> tuple[Callable[[str], ModuleType], Callable[[], list[str]]]:
    """Returns the `__getattr__` and `__dir__` of a package with these lazy submodules.

    >>> __getattr__, __dir__ = imported_when_used("anyrecord.compat.array_record.python", "array_record_module")
    >>> __getattr__("array_record_module").ArrayRecordReader.__name__
    'ArrayRecordReader'
    """

    def get(name: str) -> ModuleType:
        if name in submodules:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *submodules})

    return get, names
