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
import warnings as _warnings

from anyrecord import _core
from anyrecord._combine import concat, mix
from anyrecord._convert import Converted, convert
from anyrecord._copy import Copied, copy
from anyrecord._core import Permutation, RecordsIterator
from anyrecord._files import FileInfo, Info, Report, info, verify
from anyrecord._folder import Folder, unpack
from anyrecord._index import build_index
from anyrecord._iteration import Batches, BatchIterator, MappedIterator
from anyrecord._mapped import MappedRecords
from anyrecord._options import Limits
from anyrecord._packed import Packed
from anyrecord._packing import pack
from anyrecord._places import Location, Skipped
from anyrecord._records import Records, open
from anyrecord._recover import Recovered, recover
from anyrecord._salvage import Salvaged, salvage
from anyrecord._stats import Stats
from anyrecord._temporaries import Temporary
from anyrecord._writer import Writer, create
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
    "Packed",
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

__version__ = _core.VERSION

if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_core.after_fork)

if _core.DEBUG_BUILD:
    _warnings.warn(
        "this is a debug build of anyrecord. It is many times slower than a release build; build with --release",
        RuntimeWarning,
        stacklevel=2,
    )
