"""Provides anyrecord's modules under the names of the originals, with a finder that runs before Python's own finders.

`import array_record.python.array_record_module` asks this finder first. It returns the same module object as
`anyrecord.compat.array_record.python.array_record_module`: each module exists once and has two names.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Final

__all__ = ["ORIGINALS", "VARIABLE", "available", "install", "install_from_environment", "start", "uninstall"]

ORIGINALS: Final[dict[str, str]] = {
    "array_record": "anyrecord.compat.array_record",
    "ffrecord": "anyrecord.compat.ffrecord",
    "recordio": "anyrecord.compat.recordio",
}
"""The import names of the originals, and the packages here that replace them."""

VARIABLE: Final = "ANYRECORD_COMPAT"
"""The environment variable that names the originals to replace when Python starts, separated by commas."""


def available() -> list[str]:
    """Returns the originals that this version has modules for."""
    return [name for name, target in ORIGINALS.items() if importlib.util.find_spec(target) is not None]


def install(*names: str) -> None:
    """Makes imports of the originals return anyrecord's modules, in this process and in all its child processes.

        anyrecord.compat.install("array_record")
        from array_record.python import array_record_module     # imports the module of anyrecord.compat

    Call it before any module imports an original. Grain and TFDS import `array_record` when they are imported. A module
    that has already imported the original keeps it, so calling `install` too late raises ImportError.
    """
    if not names:
        raise ValueError(f"install() got no names; pass one or more of {', '.join(available())}")
    for name in names:
        _check(name)
    for name in names:
        if name not in _finder.installed:
            _check_not_imported(name)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.installed.update(dict.fromkeys(names))
    _tell_children(dict.fromkeys([*_named_in_environment(), *names]))


def uninstall() -> None:
    """Undoes `install`. Modules that were imported stay in use. The next import finds the originals."""
    _tell_children(name for name in _named_in_environment() if name not in _finder.installed)
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name in _finder.installed:
        for module in _modules_of(name):
            del sys.modules[module]
    _finder.installed.clear()


def install_from_environment() -> None:
    """Calls `install` with the names in `ANYRECORD_COMPAT`, if it is set."""
    names = _named_in_environment()
    for name in names:
        if name not in ORIGINALS:
            value = os.environ[VARIABLE]
            raise ValueError(f"{VARIABLE}={value}: {_unknown(name)}, separated by commas, or unset {VARIABLE}")
    if names:
        install(*names)


def start() -> None:
    """Calls `install_from_environment` when Python starts.

    An error ends the process with one line and status 1. Otherwise the program would use the originals without notice.
    """
    try:
        install_from_environment()
    except Exception as error:
        if sys.stderr is not None:
            print(" ".join(str(error).split()), file=sys.stderr, flush=True)
        os._exit(1)  # SystemExit would be raised from the import of `site` and print tracebacks


def _named_in_environment() -> list[str]:
    return [name for item in os.environ.get(VARIABLE, "").split(",") if (name := item.strip())]


def _tell_children(names: Iterable[str]) -> None:
    if text := ",".join(names):
        os.environ[VARIABLE] = text
    else:
        os.environ.pop(VARIABLE, None)


def _check(name: str) -> None:
    if name not in ORIGINALS:
        raise ValueError(_unknown(name))
    if importlib.util.find_spec(ORIGINALS[name]) is None:
        raise ModuleNotFoundError(
            f"this version of anyrecord has no modules for {name}; it has them for {', '.join(available())}",
            name=ORIGINALS[name],
        )


def _unknown(name: str) -> str:
    *others, last = ORIGINALS
    return f"anyrecord.compat has no replacement for {name!r}; use {', '.join(others)} or {last}"


def _check_not_imported(name: str) -> None:
    if imported := _modules_of(name):
        raise ImportError(
            f"{name} is already imported ({imported[-1]}), and the modules that imported it would keep the original; "
            f"call anyrecord.compat.install({name!r}) earlier, or set {VARIABLE}={name} for the whole program",
            name=name,
        )


def _modules_of(name: str) -> list[str]:
    return [module for module in sys.modules if module == name or module.startswith(f"{name}.")]


class _Finder(MetaPathFinder):
    """Finds anyrecord's modules under the names of the originals."""

    def __init__(self) -> None:
        self.installed: dict[str, None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name, dot, rest = fullname.partition(".")
        if name not in self.installed:
            return None
        ours = f"{ORIGINALS[name]}{dot}{rest}"
        found = _find_ours(ours)
        if found is None:
            # Python's own finders must not run: they would load a module of ours a second time, or the original.
            why = f"anyrecord.compat replaces {name} and has no {ours}"
            raise ModuleNotFoundError(f"No module named {fullname!r}: {why}", name=fullname)
        spec = ModuleSpec(
            fullname, _Alias(ours), origin=found.origin, is_package=found.submodule_search_locations is not None
        )
        spec.submodule_search_locations = found.submodule_search_locations
        return spec


def _find_ours(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(f"{error.name}."):
            return None  # not even its package exists
        raise


class _Alias(Loader):
    """Loads a module by replacing it with another one."""

    def __init__(self, ours: str) -> None:
        self.ours = ours

    def exec_module(self, module: ModuleType) -> None:
        ours = importlib.import_module(self.ours)
        sys.modules[module.__name__] = ours  # Python uses the entry in sys.modules when the loader has returned
        if notice := getattr(ours, "imported_as_original", None):
            notice()

    def get_code(self, fullname: str) -> CodeType | None:
        """Returns the code of the other module, for `python -m array_record.beam.demo`."""
        spec = importlib.util.find_spec(self.ours)
        return spec.loader.get_code(self.ours) if spec and isinstance(spec.loader, InspectLoader) else None


_finder = _Finder()
