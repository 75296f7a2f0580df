"""Exit codes, and how an exception is told to the user: one clear message, without a traceback."""

from __future__ import annotations

import os
import re
from typing import Any

from anyrecord._locations import redacted
from anyrecord.errors import PublishError, RecordError

__all__ = ["DAMAGE", "GOOD", "INTERNAL", "OUTPUT_CLOSED", "UNREADABLE", "USAGE", "described", "exit_code", "message"]

GOOD = 0
"""All is well."""
DAMAGE = 1
"""A file is damaged, or records are missing."""
USAGE = 2
"""The command line is wrong."""
UNREADABLE = 3
"""A file cannot be found, read or written."""
# 4 is in `__init__.py`: an extra is not installed.
INTERNAL = 5
"""A bug in anyrecord."""
INTERRUPTED = 128
"""Added to the number of a signal: 130 is Ctrl-C, 143 is a kill."""
OUTPUT_CLOSED = 141
"""Whoever read the output has closed it, such as `head`."""


def exit_code(error: BaseException) -> int:
    """The exit code for an exception."""
    if isinstance(error, PublishError):
        return UNREADABLE
    if isinstance(error, RecordError | IndexError):  # before ValueError, which some of them are
        return DAMAGE
    if isinstance(error, OSError | MemoryError | EOFError):
        return UNREADABLE
    if isinstance(error, ImportError):
        from anyrecord.cli import MISSING_EXTRA

        return MISSING_EXTRA
    if isinstance(error, ValueError | TypeError | OverflowError):
        return USAGE
    return INTERNAL


def message(error: BaseException) -> str:
    """What an exception says, in the words of the command line. It may have control characters."""
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"
    elif isinstance(error, KeyError):
        text = str(error.args[0]) if error.args else "KeyError"
    else:
        text = str(error) or type(error).__name__
    if exit_code(error) == INTERNAL:
        text = f"{type(error).__name__}: {text}; this is a bug in anyrecord, and --debug shows where"
    return _translated_around(_path_of(error), redacted(text))


def _path_of(error: BaseException) -> str | None:
    """The file that an exception is about."""
    if isinstance(error, OSError) and error.filename is not None:
        return redacted(os.fsdecode(error.filename))
    return getattr(error, "path", None)


def _translated_around(path: str | None, text: str) -> str:
    """Translates a message, but not the name of the file in it, which may look like an option."""
    return path.join(translated(part) for part in text.split(path)) if path else translated(text)


def notes(error: BaseException) -> list[str]:
    """The hints that an exception carries."""
    return [translated(str(note)) for note in getattr(error, "__notes__", ())]


def described(error: BaseException) -> dict[str, Any]:
    """An exception for `--json`."""
    told: dict[str, Any] = {
        "type": type(error).__name__,
        "message": message(error),
        "exit_code": exit_code(error),
    }
    told |= {name: getattr(error, name, None) for name in ("path", "offset", "record", "expected", "found")}
    told["path"] = _path_of(error)
    told["hints"] = notes(error)
    return told


_FUNCTION = re.compile(r"\banyrecord\.(convert|copy|info|pack|recover|salvage|unpack|verify)\b(\(\))?")
_KEYWORD = re.compile(
    r"(?<![\w./\\-])(cache|cache_folder_bytes|chunk_bytes|codec|durable|epoch|expected_records|format|group_size|io|keep|"
    r"level|max_errors|on_error|overwrite|salvage_to|seed|shard_bytes|shard_records|shards|source_format|storage|"
    r"target_storage|threads|transpose|window_log)"
    # Folders can have such names: not seed=3/train.ffr, and not format=new.ffr.
    r"=(['\"]?)(-?\w*)\2(?![\w*?-]*[/\\@\[]|[\w*?-]*\.\w)"
)
_RECOVER = re.compile(r"""\banyrecord\.recover\((['"])(.*?)\1, (?:keep=['"]?(\w+)['"]?|salvage_to=\.\.\.)\)""")
_STORAGE = re.compile(r"storage=\{([^{}]*)\}")
_PHRASES = {
    "anyrecord.build_index": "'anyrecord index'",
    "anyrecord.Folder": "'anyrecord get'",
    "with anyrecord.open(path)": "with 'anyrecord cat'",
    "with anyrecord.open": "with 'anyrecord cat'",
    "on_error='skip', on_error='replace' or a function": "on_error='skip' or on_error='replace'",
}
QUOTES = " \"'"
_FLAGS = frozenset({"durable", "overwrite", "transpose"})


def translated(text: str) -> str:
    """A message of the Python library in the words of the command line.

    >>> translated("pass format=, one of ffrecord; or overwrite=True, or on_error='skip'; see anyrecord.salvage")
    "pass --format, one of ffrecord; or --overwrite, or --on-error skip; see 'anyrecord salvage'"
    >>> translated("no such file: runs/seed=3/format=new.ffr, seed=3/a.ffr")
    'no such file: runs/seed=3/format=new.ffr, seed=3/a.ffr'
    """
    for words, ours in _PHRASES.items():
        text = text.replace(words, ours)
    text = _RECOVER.sub(_recover, text)
    text = _STORAGE.sub(_storage_options, text)
    return _KEYWORD.sub(_option, _FUNCTION.sub(r"'anyrecord \1'", text))


def _storage_options(found: re.Match[str]) -> str:
    pairs = [pair.partition(":") for pair in found[1].split(",")]
    return " ".join(f"--storage {name.strip(QUOTES)}={value.strip(QUOTES)}" for name, _, value in pairs)


def _recover(found: re.Match[str]) -> str:
    how = "--salvage-to FILE" if found[3] is None else f"--keep {found[3]}"
    return f"'anyrecord recover {found[2]} {how}'"


def _option(found: re.Match[str]) -> str:
    name, value = "shuffle" if found[1] == "seed" else found[1].replace("_", "-"), found[3]
    if found[1] in _FLAGS:
        return f"--no-{name}" if value == "False" else f"--{name}"
    return f"--{name} {value}" if value else f"--{name}"
