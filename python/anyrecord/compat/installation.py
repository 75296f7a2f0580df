"""Provides anyrecord's modules under the names of the originals, with a finder that runs before Python's own finders.

`import array_record.python.array_record_module` asks this finder first. It returns the same module object as
`anyrecord.compat.array_record.python.array_record_module`: each module exists once and has two names.

`array_record.beam` is the only part without modules here. It comes from the installed original, whose Beam modules then
import the `array_record.python` of anyrecord.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

__all__ = ["ORIGINALS", "VARIABLE", "available", "install", "install_from_environment", "start", "uninstall"]

ORIGINALS: Final[dict[str, str]] = {
    "array_record": "anyrecord.compat.array_record",
    "ffrecord": "anyrecord.compat.ffrecord",
    "recordio": "anyrecord.compat.recordio",
}
"""The import names of the originals, and the packages here that replace them."""

_LEFT_TO_THE_ORIGINAL: Final = {"array_record.beam": "array-record[beam]"}
"""Packages without modules here, which are imported from the installed original, and what to install for them."""

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
            return _find_in_original(fullname, ours)
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


def _find_in_original(fullname: str, ours: str) -> ModuleSpec:
    """Finds a module of the installed original, if it is in a package that comes from the original."""
    name = fullname.partition(".")[0]
    packages = [package for package in _LEFT_TO_THE_ORIGINAL if f"{fullname}.".startswith(f"{package}.")]
    if not packages:
        why = f"anyrecord.compat replaces {name} and has no {ours}"
    elif (spec := _find_past_us(fullname)) is not None:
        return spec
    elif (original := _find_past_us(name)) is not None and original.origin is not None:
        why = f"anyrecord.compat takes it from the original {name}, and {original.origin} has no such module"
    else:  # nothing was found, or only a folder of that name without __init__.py
        needed = _LEFT_TO_THE_ORIGINAL[packages[0]]
        why = f'anyrecord.compat takes it from the original {name}, which is not installed; pip install "{needed}"'
    raise ModuleNotFoundError(f"No module named {fullname!r}: {why}", name=fullname)


def _find_past_us(fullname: str) -> ModuleSpec | None:
    """Finds what Python would find without this finder."""
    parts = fullname.split(".")
    spec, places = None, None
    for end in range(1, len(parts) + 1):
        if end > 1 and places is None:
            return None  # the parent is a module, not a package
        spec = _ask_others(".".join(parts[:end]), places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    return spec


def _ask_others(fullname: str, places: Sequence[str] | None) -> ModuleSpec | None:
    others = [finder for finder in sys.meta_path if finder is not _finder and hasattr(finder, "find_spec")]
    specs = (finder.find_spec(fullname, places) for finder in others)
    return next((spec for spec in specs if spec is not None), None)


class _Alias(Loader):
    """Loads a module by replacing it with another one."""

    def __init__(self, ours: str) -> None:
        self.ours = ours

    def exec_module(self, module: ModuleType) -> None:
        ours = importlib.import_module(self.ours)
        sys.modules[module.__name__] = ours  # Python uses the entry in sys.modules when the loader has returned
        if notice := getattr(ours, "imported_as_original", None):
            notice()


_finder = _Finder()
