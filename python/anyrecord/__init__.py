"""Record files that machine learning trains on, read and written exactly, fast, and safe on hostile bytes.

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
from anyrecord._core import Permutation, RecordsIterator
from anyrecord.combine import concat, mix
from anyrecord.convert import Converted, convert
from anyrecord.errors import (
    ChecksumError,
    ClosedError,
    FormatError,
    LimitError,
    PublishError,
    RecordError,
    TruncatedError,
)
from anyrecord.files import FileInfo, Info, Report, info, verify
from anyrecord.folder import Folder, unpack
from anyrecord.index import build_index
from anyrecord.iteration import Batches, BatchIterator, MappedIterator
from anyrecord.mapped import MappedRecords
from anyrecord.options import Limits
from anyrecord.packing import pack
from anyrecord.records import Location, Records, open
from anyrecord.recover import Recovered, recover
from anyrecord.writer import Writer, create

__all__ = [
    "BatchIterator",
    "Batches",
    "ChecksumError",
    "ClosedError",
    "Converted",
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
    "TruncatedError",
    "Writer",
    "build_index",
    "concat",
    "convert",
    "create",
    "info",
    "mix",
    "open",
    "pack",
    "recover",
    "unpack",
    "verify",
]

__version__ = _core.VERSION

if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_core.after_fork)

if _core.DEBUG_BUILD:
    _warnings.warn(
        "this is a debug build of anyrecord, many times slower than a release build; build with --release",
        RuntimeWarning,
        stacklevel=2,
    )
