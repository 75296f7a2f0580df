"""`recordio.recordio`: the module that the classes of the Python binding are in, for code that names it."""

from anyrecord.compat.recordio.index import Index
from anyrecord.compat.recordio.scanner import Scanner
from anyrecord.compat.recordio.writer import Writer

__all__ = ["Index", "Scanner", "Writer"]
