"""A drop-in replacement for `recordio`: you only change the import line.

>>> from anyrecord.compat import recordio
>>> writer = recordio.Writer("doc.recordio")
>>> for record in (b"Hello", b"World,", b"RecordIO!"):
...     writer.write(record)
>>> writer.close()
>>> scanner = recordio.Scanner("doc.recordio", start=1)
>>> scanner.record(), scanner.record(), scanner.record()
(b'World,', b'RecordIO!', None)
>>> scanner.close()

This package has the classes of the Python binding. It also has what only the Go library has, under Python names:
`new_writer`, `load_index`, `new_scanner`, `FileList` and `FileListScanner`. `shard_plan` and `new_queue_scanner`, which
neither has, hand ranges out to workers. If the original crashes, hangs, leaks or
loses data, this package raises an error or does what was intended. `docs/compat-recordio.md` lists each difference. In
new code, use `anyrecord` itself.
"""

from anyrecord.compat.recordio import recordio as recordio
from anyrecord.compat.recordio.filelist import FileList
from anyrecord.compat.recordio.index import Index, load_index
from anyrecord.compat.recordio.readahead import FileListScanner
from anyrecord.compat.recordio.scanner import RangeScanner, Scanner, new_scanner
from anyrecord.compat.recordio.shards import new_queue_scanner, shard_plan
from anyrecord.compat.recordio.writer import GZIP, NO_COMPRESSION, SNAPPY, ChunkWriter, Writer, new_writer

__all__ = [
    "GZIP",
    "NO_COMPRESSION",
    "SNAPPY",
    "ChunkWriter",
    "FileList",
    "FileListScanner",
    "Index",
    "RangeScanner",
    "Scanner",
    "Writer",
    "load_index",
    "new_queue_scanner",
    "new_scanner",
    "new_writer",
    "shard_plan",
]
