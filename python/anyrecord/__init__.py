"""Reads and writes record files for machine learning: exactly, fast, and safely even if a file is hostile.

>>> import anyrecord
>>> with anyrecord.create("doc.ffr", overwrite=True) as out:
...     for sample in (b"cat", b"dog", b"bird"):
...         out.write(sample)
>>> records = anyrecord.open("doc.ffr")
>>> records[2], records[[1, 0]], list(records[1:])
(b'bird', [b'dog', b'cat'], [b'dog', b'bird'])
"""

from __future__ import annotations

import os as _os
import sys as _sys
import warnings as _warnings
from importlib import import_module as _import_module
from threading import RLock as _RLock
from typing import TYPE_CHECKING as _TYPE_CHECKING

from anyrecord import _core
from anyrecord._core import Permutation, RecordsIterator
from anyrecord.errors import (
    ChecksumError,
    ClosedError,
    DamageWarning,
    FormatError,
    LimitError,
    PublishError,
    RecordError,
    TruncatedError,
)

if _TYPE_CHECKING:
    from anyrecord._combine import concat, mix
    from anyrecord._convert import Converted, convert
    from anyrecord._copy import Copied, copy
    from anyrecord._files import FileInfo, Info, Report, info, verify
    from anyrecord._folder import Folder, unpack
    from anyrecord._index import build_index
    from anyrecord._iteration import Batches, BatchIterator, MappedIterator
    from anyrecord._mapped import MappedRecords
    from anyrecord._options import Limits
    from anyrecord._packing import pack
    from anyrecord._records import Location, Records, Skipped, open
    from anyrecord._recover import Recovered, recover
    from anyrecord._salvage import Salvaged, salvage
    from anyrecord._stats import Stats
    from anyrecord._temporaries import Temporary
    from anyrecord._writer import Writer, create

__all__ = [
    "BatchIterator",
    "Batches",
    "ChecksumError",
    "ClosedError",
    "Converted",
    "Copied",
    "DamageWarning",
    "FileInfo",
    "Folder",
    "FormatError",
    "Info",
    "LimitError",
    "Limits",
    "Location",
    "MappedIterator",
    "MappedRecords",
    "Permutation",
    "PublishError",
    "RecordError",
    "Records",
    "RecordsIterator",
    "Recovered",
    "Report",
    "Salvaged",
    "Skipped",
    "Stats",
    "Temporary",
    "TruncatedError",
    "Writer",
    "build_index",
    "concat",
    "convert",
    "copy",
    "create",
    "info",
    "mix",
    "open",
    "pack",
    "recover",
    "salvage",
    "unpack",
    "verify",
]

_IMPORTED_ON_USE = {
    "_combine": ("concat", "mix"),
    "_convert": ("Converted", "convert"),
    "_copy": ("Copied", "copy"),
    "_files": ("FileInfo", "Info", "Report", "info", "verify"),
    "_folder": ("Folder", "unpack"),
    "_index": ("build_index",),
    "_iteration": ("BatchIterator", "Batches", "MappedIterator"),
    "_mapped": ("MappedRecords",),
    "_options": ("Limits",),
    "_packing": ("pack",),
    "_records": ("Location", "Records", "Skipped", "open"),
    "_recover": ("Recovered", "recover"),
    "_salvage": ("Salvaged", "salvage"),
    "_stats": ("Stats",),
    "_temporaries": ("Temporary",),
    "_writer": ("Writer", "create"),
}
"""Modules that are imported when one of their names is first used. So `import anyrecord` takes few milliseconds."""
_MODULE_OF = {name: module for module, names in _IMPORTED_ON_USE.items() for name in names}
_importing = _RLock()
"""Held during such an import. A process that is forked meanwhile could never import the same module: a thread that it
does not have holds the lock of the module. So a fork waits for the import."""


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=_sys.modules[__name__])
    with _importing:
        module = _import_module(f"{__name__}.{_MODULE_OF[name]}")
    # The next use finds the name in this module and does not come here.
    globals()[name] = found = getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__version__ = _core.VERSION

if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_core.after_fork)
    _os.register_at_fork(
        before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release
    )

if _core.DEBUG_BUILD:
    _warnings.warn(
        "this is a debug build of anyrecord. It is many times slower than a release build; build with --release",
        RuntimeWarning,
        stacklevel=2,
    )
