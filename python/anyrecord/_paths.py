"""Expands what a user passes as a source into files.

A source is a file, a folder, a glob, `name@N`, `file[a:b]`, or an iterable of those. Each can be a local path or a URL.
If a local file with exactly that name exists, it is used, whatever characters its name has. Only a `str` can be a
pattern: a path object (`os.PathLike`) is one file or folder.

If a shard of a set is missing, `name@N`, a folder and a glob raise an error. An explicit list of files never does.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from anyrecord import _core
from anyrecord._dataclasses import dataclass, field, replace
from anyrecord._locations import StrPath, is_url, missing_slash_hint, shown, split_query, text_of
from anyrecord._publishing import ATTEMPTS
from anyrecord._shard_names import (
    MIN_DIGITS,
    NAMED,
    RECORD_SUFFIXES,
    SHARD,
    ShardSet,
    check_sets,
    conventions,
    record_suffix,
    shard_name,
    shard_sets,
)
from anyrecord._trees import LOCAL, Entry, ObjectTree, StoreTree, Tree, UrlTree

if TYPE_CHECKING:
    from anyrecord._options import OpenOptions

__all__ = ["NO_MATCH", "FileRange", "expand", "size_of", "with_sizes"]

NO_MATCH = "no file matches the pattern"
"""What a FileNotFoundError says if a glob matches nothing. If it says something else, a file is missing."""

_RANGE = re.compile(r"(.+)\[([0-9]*):([0-9]*)\]", re.DOTALL)
_NUMBERED = re.compile(r"(.+)@([0-9]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FileRange:
    """One file, or its records from `start` up to `stop`, which is not included.

    >>> FileRange("train.array_record")
    FileRange(path='train.array_record', start=0, stop=None)
    """

    path: str
    start: int = 0
    stop: int | None = None
    is_local: bool = field(default=True, repr=False, compare=False)
    size: int | None = field(default=None, repr=False, compare=False)
    """Bytes of an object, if they are known."""


def expand(source: StrPath | Iterable[StrPath], options: OpenOptions | None = None) -> list[FileRange]:
    """Returns the files that `source` names, in reading order.

    - an existing file: that file
    - an existing folder: the record files directly in the folder, ordered by name
    - `file[a:b]`: the records from a up to b of one existing file; you can leave out a or b
    - `name@N`: the N shards of `name`, ordered by number
    - a glob, where `**` means any depth: the files that match, ordered by path
    - an iterable of these: each in turn. A `set`, which has no order, is sorted.

    An `os.PathLike` is always one existing file or folder, never a pattern. The URL of an object is not looked up
    here. A URL is a folder if it ends in a slash. Outside of a list, it is also a folder if its name has no record
    suffix and there are objects below it.

    Raises FileNotFoundError if nothing is found or a shard is missing, ValueError if the source is ambiguous, and
    TypeError for anything but paths.
    """
    if isinstance(source, str | os.PathLike):
        return _expand_one(source, options)
    if isinstance(source, bytes | bytearray | memoryview | Mapping) or not isinstance(source, Iterable):
        raise _not_a_path(source)
    paths = list(source)
    if not paths:
        raise ValueError("the list of files is empty; pass at least one path")
    if isinstance(source, set | frozenset):
        paths.sort(key=_text)
    return [file for path in paths for file in _expand_one(path, options, is_listed=True)]


def with_sizes(files: list[FileRange], options: OpenOptions) -> list[FileRange]:
    """The same files, with the sizes of objects. Objects whose sizes are not known are asked for them together."""
    unknown = list(dict.fromkeys(file.path for file in files if not file.is_local and file.size is None))
    if options.store is not None:
        options.store.ask_sizes(unknown)
        sizes = {path: options.store.size(path) for path in unknown}
    else:
        sizes = dict(zip(unknown, _core.object_sizes(unknown, list(options.storage)), strict=True)) if unknown else {}
    return [replace(file, size=sizes[file.path]) if file.path in sizes else file for file in files]


def size_of(file: FileRange) -> int:
    """The size of a file that `with_sizes` returned."""
    return os.path.getsize(file.path) if file.size is None else file.size


def _text(path: object) -> str:
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        if isinstance(text, str):
            return text
    raise _not_a_path(path)


def _not_a_path(found: object) -> TypeError:
    return TypeError(f"expected a str, an os.PathLike of str, or an iterable of those; found {type(found).__name__}")


def _expand_one(path: StrPath, options: OpenOptions | None, *, is_listed: bool = False) -> list[FileRange]:
    given, is_pattern = _text(path), isinstance(path, str)
    if options is not None and options.store is not None:  # it may have schemes that we do not have
        store = options.store
        text = store.path(given)
        found = _find_objects(text, StoreTree(text, store), is_pattern, is_listed)
        return [replace(file, path=store.named(file.path)) for file in found]
    text = text_of(path) if options is None or options.root is None else options.root.path(path)
    if is_url(text):
        tree = UrlTree(text, () if options is None else options.storage)
        return _find_objects(text, tree, is_pattern, is_listed)
    try:
        return _find_files(text, is_pattern)
    except FileNotFoundError:
        hint = missing_slash_hint(text)
        if not hint:
            raise
        raise FileNotFoundError(errno.ENOENT, f"{os.strerror(errno.ENOENT)}; {hint}") from None


def _find_files(text: str, is_pattern: bool) -> list[FileRange]:
    for _ in range(ATTEMPTS - 1):
        try:
            return _find(text, is_pattern)
        except (FileNotFoundError, ValueError):  # if a set was replaced during the search, the next attempt finds it
            continue
    return _find(text, is_pattern)


# --- objects ---


def _find_objects(path: str, tree: ObjectTree, is_pattern: bool, is_listed: bool) -> list[FileRange]:
    front, query = split_query(path)
    name = tree.split(front)[1]
    if not name:
        return _whole(_folder(front, tree), tree)
    if is_pattern:
        if part := _object_range(front, query, tree):
            return [part]
        if tree.has_magic(front) or _NUMBERED.fullmatch(front):
            return _whole(_matching(front, tree), tree)
    # Only a request can tell a folder from an object without a suffix. That would be one for each name of a list.
    # Most web servers have no folders.
    if not is_listed and not record_suffix(name) and tree.has_folders(front) and tree.is_folder(front):
        return _whole(_folder(front, tree), tree)
    return [FileRange(path, is_local=False)]


def _object_range(front: str, query: str, tree: ObjectTree) -> FileRange | None:
    """The part of an object that `[a:b]` names, before or after the query of its URL."""
    for text, rest in ((front, query), (front + query, "")):
        part = _RANGE.fullmatch(text)
        if part is None or part[1].endswith("/"):
            continue
        named = split_query(part[1])[0]
        if not tree.has_magic(named) or tree.exact(named):
            return replace(_range(part, front + query, tree), path=part[1] + rest)
    return None


def _matching(path: str, tree: ObjectTree) -> list[Entry]:
    """The objects that match `name@N` or a glob. An object of exactly that name is found first."""
    folder, name = tree.split(path)
    has_magic_folder = name == "**" or tree.has_magic(folder)
    if not has_magic_folder and (exact := tree.exact(path)):
        return exact
    shards = _numbered(path, tree.has_magic(path), tree)
    if shards is not None:
        return shards
    try:
        return _glob(path, tree)
    except FileNotFoundError:
        if has_magic_folder and (exact := tree.exact(path)):
            return exact
        raise


# --- local files ---


def _find(path: str, is_pattern: bool) -> list[FileRange]:
    mode = _mode(path)
    if mode is not None:
        return _whole(_folder(path, LOCAL), LOCAL) if stat.S_ISDIR(mode) else [FileRange(path)]
    return _pattern(path) if is_pattern else _missing(path)


def _stat_of(path: str) -> os.stat_result:
    """Does the same as `os.stat`, but if the file is missing and has shards, the error says how to open the shards."""
    try:
        return os.stat(path)
    except FileNotFoundError as error:
        LOCAL.refuse_unfinished_file(path)
        hint = _shards_hint(path, LOCAL)
        if not hint:
            raise
        raise FileNotFoundError(errno.ENOENT, f"{error.strerror}; {hint}", path) from None


def _missing(path: str) -> list[FileRange]:
    """Raises the error for a path object whose file does not exist."""
    try:
        _stat_of(path)
    except FileNotFoundError as error:
        if not LOCAL.has_magic(path) and not _NUMBERED.fullmatch(path):
            raise
        text = f"{error.strerror}; a path object is always one file or folder: pass a str for a glob, name@N or [a:b]"
        raise FileNotFoundError(errno.ENOENT, text, path) from None
    return [FileRange(path)]  # the file has appeared in the meantime


def _pattern(path: str) -> list[FileRange]:
    part = _RANGE.fullmatch(path)
    if part is not None and os.path.isfile(part[1]):
        return [_range(part, path, LOCAL)]
    magic = LOCAL.has_magic(path)
    shards = _numbered(path, magic, LOCAL)
    if shards is not None:
        return _whole(shards, LOCAL)
    if magic:
        return _whole(_glob(path, LOCAL), LOCAL)
    LOCAL.refuse_unfinished_file(path)
    _stat_of(path)  # raises FileNotFoundError
    return [FileRange(path)]


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except PermissionError:
        raise
    except OSError:  # includes patterns that cannot be file names: too long, or with characters the system refuses
        return None


# --- both ---


def _whole(entries: list[Entry], tree: Tree) -> list[FileRange]:
    return [FileRange(entry.path, is_local=tree.is_local, size=entry.size) for entry in entries]


def _range(match: re.Match[str], path: str, tree: Tree) -> FileRange:
    start = int(match[2] or 0)
    stop = int(match[3]) if match[3] else None
    if stop is not None and start > stop:
        raise ValueError(f"the range of {shown(path)!r} ends before it starts: {start} > {stop}; swap the two numbers")
    return FileRange(match[1], start, stop, is_local=tree.is_local)


def _numbered(path: str, magic: bool, tree: Tree) -> list[Entry] | None:
    """The shards of `name@N`. None if the path does not have that form, or if it can still be a glob."""
    folder, base = tree.split(path)
    match = _NUMBERED.fullmatch(base)
    if match is None:
        return None
    name, count = match[1], int(match[2])
    named = tree.shown(path)
    if count == 0:
        raise ValueError(f"{named!r} asks for 0 shards; the number after @ must be at least 1")
    wanted = conventions(name)
    found: list[Entry] = []
    other_counts: set[int] = set()
    for entry in tree.entries(folder):
        shard = SHARD.fullmatch(entry.name)
        if shard is None or (shard[1], shard[4]) not in wanted:
            continue
        if int(shard[3]) == count:
            found.append(entry)
        else:
            other_counts.add(int(shard[3]))
    tree.refuse_unfinished(folder, lambda name: (found := SHARD.fullmatch(name)) and (found[1], found[4]) in wanted)
    if not found:
        if magic:
            return None
        shards = [shard_name(prefix, 0, count, suffix) for prefix, suffix in wanted]
        tried = [repr(tree.join(tree.shown(folder), shard)) for shard in shards]
        hint = ", or another record suffix" if len(tried) > 2 else ""
        if other_counts:
            hint += f"; there are shards with other counts: {', '.join(map(str, sorted(other_counts)[:NAMED]))}"
        text = f"no shard of {named!r} exists: tried {tried[0]} and {tried[1]}{hint}"
        raise FileNotFoundError(errno.ENOENT, text)
    sets = shard_sets(sorted(found, key=lambda entry: entry.path), tree)
    if len(sets) > 1:
        names = " and ".join(repr(found.pattern) for found in sets)
        raise ValueError(f"{named!r} matches more than one set of shards: {names}; pass the glob of one set")
    sets[0].check()
    return [entry for _, entry in sorted(sets[0].members.items())]


def _shards_hint(path: str, tree: Tree) -> str:
    """If a name has shards, the text of a hint on what to pass to read them. Else an empty string."""
    folder, name = tree.split(path)
    wanted = set(conventions(name)) if name else set()
    found: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
    with suppress(OSError):  # a folder that cannot be listed
        for entry in tree.entries(folder):
            shard = SHARD.fullmatch(entry.name)
            if shard is not None and (shard[1], shard[4]) in wanted:
                found[int(shard[3])].add((shard[1], shard[4]))
    ways: list[str] = []
    for count, kinds in sorted(found.items()):
        if len(kinds) == 1:
            ways.append(f"{tree.shown(path)}@{count}")
        else:  # both conventions, or several suffixes: only a glob can choose one of them
            ways += [ShardSet(folder, *kind, f"{count:05}", MIN_DIGITS, tree).pattern for kind in sorted(kinds)]
    if not ways:
        return ""
    more = f" (and {len(ways) - NAMED} more sets)" if len(ways) > NAMED else ""
    return f"there are shards of that name; to read them, pass {' or '.join(map(repr, ways[:NAMED]))}{more}"


def _glob(pattern: str, tree: Tree) -> list[Entry]:
    found = tree.glob(pattern)
    tree.refuse_unfinished_matches(pattern)
    if found.files:
        check_sets(found.files, tree)
        return found.files
    if found.has_folders:
        message = "the pattern matches only folders, not files; add '/*' to match the files in them"
    elif part := _RANGE.fullmatch(pattern):
        tree.refuse_unfinished_file(part[1])
        message = "no file matches the pattern; for a range, pass the name of an existing file before [a:b]"
        if hint := _shards_hint(part[1], tree):
            message += f"; {hint}, and slice the records"
    else:
        message = NO_MATCH
    raise FileNotFoundError(errno.ENOENT, message, tree.shown(pattern))


def _folder(folder: str, tree: Tree) -> list[Entry]:
    entries: list[Entry] = []
    suffixes: Counter[str] = Counter()
    for entry in tree.entries(folder):
        suffix = "" if entry.name.startswith(".") else record_suffix(entry.name)
        if suffix:
            entries.append(entry)
            suffixes[suffix] += 1
    tree.refuse_unfinished(folder)
    named = tree.shown(folder)
    if not entries:
        raise FileNotFoundError(
            errno.ENOENT,
            f"the folder {named!r} contains no file that ends in {', '.join(RECORD_SUFFIXES)}; "
            "pass a glob to read files with other names",
        )
    kinds = sorted({RECORD_SUFFIXES[suffix] for suffix in suffixes})
    if len(kinds) > 1:
        likeliest = max(sorted(suffixes), key=suffixes.__getitem__)
        pattern = tree.join(glob.escape(named), f"*{likeliest}*")
        raise ValueError(
            f"the folder {named!r} contains files of different formats: {', '.join(kinds)}; "
            f"choose one format with a glob such as {pattern!r}"
        )
    entries.sort(key=lambda entry: entry.path)
    check_sets(entries, tree)
    return entries
