"""`ffrecord.fileio`: the module that `FileReader` and `FileWriter` are in, for code that names it."""

from anyrecord.compat.ffrecord.reader import FileReader, checkFsAlign
from anyrecord.compat.ffrecord.writer import FileWriter

__all__ = ["FileReader", "FileWriter", "checkFsAlign"]
