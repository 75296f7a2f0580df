"""`ffrecord.fileio`: the original's module of `FileReader` and `FileWriter`, for code that imports from it."""

from anyrecord.compat.ffrecord.reader import FileReader, checkFsAlign
from anyrecord.compat.ffrecord.writer import FileWriter

__all__ = ["FileReader", "FileWriter", "checkFsAlign"]
