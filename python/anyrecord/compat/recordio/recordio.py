"""`recordio.recordio`: the original's module of the Python binding, for code that imports from it."""

from anyrecord.compat.recordio.index import Index
from anyrecord.compat.recordio.scanner import Scanner
from anyrecord.compat.recordio.writer import Writer

__all__ = ["Index", "Scanner", "Writer"]
