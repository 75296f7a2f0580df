"""Expands what a user passes as a source into files, and names the shards of an output.

A source is a file, a folder, a glob, `name@N`, `file[a:b]`, or an iterable of those. If a file with exactly that name
exists, it is used, whatever characters its name has. Only a `str` can be a pattern: a path object (`os.PathLike`) is
one file or folder.

The number of a shard is in one of two places. Both are understood everywhere:

    train-00000-of-00016.array_record      before the suffix: Beam, and `shard_paths`
    train.array_record-00000-of-00016      after the suffix: TFDS

If a shard of a set is missing, `name@N`, a folder and a glob raise an error. An explicit list of files never does.
"""

import errno
import glob
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from anyrecord import _core
from anyrecord._locations import StrPath, refuse_mangled_url, refuse_url
from anyrecord._publishing import (
    ATTEMPTS,
    refuse_unfinished,
    refuse_unfinished_file,
    refuse_unfinished_matches,
)

__all__ = [
    "RECORD_SUFFIXES",
    "FileRange",
    "existing_shards",
    "expand",
    "renamed",
    "set_name",
    "shard_paths",
    "stat_of",
]


RECORD_SUFFIXES: Final[dict[str, str]] = dict(_core.suffixes())
"""Each suffix of a record file, with its format."""

_MIN_DIGITS = 5
_NAMED = 3  # how many missing files an error names
_MAGIC = re.compile(r"[*?[]")
_RANGE = re.compile(r"(.+)\[([0-9]*):([0-9]*)\]", re.DOTALL)
_NUMBERED = re.compile(r"(.+)@([0-9]+)", re.DOTALL)
_SHARD = re.compile(r"(.*)-([0-9]{5,})-of-([0-9]{5,})((?:\..*)?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FileRange:
    """One file, or its records from `start` up to `stop`, which is not included.

    >>> FileRange("train.array_record")
    FileRange(path='train.array_record', start=0, stop=None)
    """

    path: str
    start: int = 0
    stop: int | None = None


def expand(source: StrPath | Iterable[StrPath]) -> list[FileRange]:
    """Returns the files that `source` names, in reading order.

    - an existing file: that file
    - an existing folder: the record files directly in the folder, ordered by name
    - `file[a:b]`: the records from a up to b of one existing file; you can leave out a or b
    - `name@N`: the N shards of `name`, ordered by number
    - a glob, where `**` means any depth: the files that match, ordered by path
    - an iterable of these: each in turn. A `set`, which has no order, is sorted.

    An `os.PathLike` is always one existing file or folder, never a pattern.

    Raises FileNotFoundError if nothing is found or a shard is missing, ValueError if the source is ambiguous, and
    TypeError for anything but paths.
    """
    if isinstance(source, str | os.PathLike):
        return _expand_one(source)
    if isinstance(source, bytes | bytearray | memoryview) or not isinstance(source, Iterable):
        raise _not_a_path(source)
    paths = list(source)
    if not paths:
        raise ValueError("the list of files is empty; pass at least one path")
    if isinstance(source, set | frozenset):
        paths.sort(key=_text)
    return [file for path in paths for file in _expand_one(path)]


def stat_of(path: str) -> os.stat_result:
    """Does the same as `os.stat`, but if the file is missing and has shards, the error says how to open the shards."""
    try:
        return os.stat(path)
    except FileNotFoundError as error:
        refuse_unfinished_file(path)
        hint = _shards_hint(path)
        if not hint:
            raise
        raise FileNotFoundError(errno.ENOENT, f"{error.strerror}; {hint}", path) from None


def shard_paths(path: str, count: int) -> list[str]:
    """Returns the names of the `count` shards that are written for `path`.

    >>> shard_paths("train.array_record", 2)
    ['train-00000-of-00002.array_record', 'train-00001-of-00002.array_record']
    >>> shard_paths("train", 1)
    ['train-00000-of-00001']
    """
    if count < 1:
        raise ValueError(f"the number of shards must be at least 1, not {count}")
    folder, name = os.path.split(path)
    if not name:
        raise ValueError(f"{path!r} has no file name to number; pass one such as 'train.array_record'")
    prefix, suffix = _split_suffix(name)
    return [os.path.join(folder, _shard_name(prefix, index, count, suffix)) for index in range(count)]


def renamed(name: str, suffix: str) -> str:
    """Replaces the record suffix of a file name. The shard number stays in its place.

    >>> renamed("train.tfrecord", ".array_record")
    'train.array_record'
    >>> renamed("train-00000-of-00002.tfrecord.gz", ".array_record")
    'train-00000-of-00002.array_record'
    >>> renamed("train.tfrecord-00000-of-00002", ".array_record")
    'train.array_record-00000-of-00002'
    """
    prefix, old = _split_suffix(name)
    if not old and (match := _SHARD.fullmatch(name)) and not match[4]:
        stem, old = _split_suffix(match[1])
        number = name.removeprefix(match[1])
        # Without a record suffix the naming convention is not known. Put the suffix last, as `shard_paths` does.
        return f"{stem}{suffix}{number}" if old else f"{name}{suffix}"
    return prefix + suffix


def set_name(name: str) -> str | None:
    """Returns the name of the set that a shard belongs to, by the names of `shard_paths`. None if it is not a shard.

    >>> set_name("train-00000-of-00002.array_record")
    'train.array_record'
    """
    match = _SHARD.fullmatch(name)
    return None if match is None else match[1] + match[4]


def existing_shards(path: str) -> list[str]:
    """Returns the existing files that `shard_paths(path, count)` names for any count, sorted by count and number.

    Overwriting `path` must replace all of them, so shards of incomplete sets and broken links are included.
    """
    folder, name = os.path.split(path)
    own = _split_suffix(name)
    found: list[tuple[int, int, str]] = []
    for entry in _entries(folder):
        match = _SHARD.fullmatch(entry.name)
        if match is None or (match[1], match[4]) != own or entry.is_dir():
            continue
        index, count = int(match[2]), int(match[3])
        if index < count and entry.name == _shard_name(own[0], index, count, own[1]):
            found.append((count, index, os.path.join(folder, entry.name)))
    return [shard for _, _, shard in sorted(found)]


def _text(path: object) -> str:
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        if isinstance(text, str):
            return text
    raise _not_a_path(path)


def _not_a_path(found: object) -> TypeError:
    return TypeError(f"expected a str, an os.PathLike of str, or an iterable of those; found {type(found).__name__}")


def _not_found(message: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, message)


def _expand_one(path: StrPath) -> list[FileRange]:
    for _ in range(ATTEMPTS - 1):
        try:
            return _find(path)
        except (FileNotFoundError, ValueError):  # if a set was replaced during the search, the next attempt finds it
            continue
    return _find(path)


def _find(path: StrPath) -> list[FileRange]:
    text = _text(path)
    if _core.check_url(text):
        return [FileRange(text)]
    if isinstance(path, str):
        refuse_url(text)
    else:
        refuse_mangled_url(path)
    mode = _mode(text)
    if mode is not None:
        return _whole(_folder(text)) if stat.S_ISDIR(mode) else [FileRange(text)]
    return _pattern(text) if isinstance(path, str) else _missing(text)


def _missing(path: str) -> list[FileRange]:
    """Raises the error for a path object whose file does not exist."""
    try:
        stat_of(path)
    except FileNotFoundError as error:
        if not _MAGIC.search(path) and not _NUMBERED.fullmatch(path):
            raise
        text = f"{error.strerror}; a path object is always one file or folder: pass a str for a glob, name@N or [a:b]"
        raise FileNotFoundError(errno.ENOENT, text, path) from None
    return [FileRange(path)]  # the file has appeared in the meantime


def _pattern(path: str) -> list[FileRange]:
    part = _range(path)
    if part is not None:
        return [part]
    magic = _MAGIC.search(path) is not None
    shards = _numbered(path, magic)
    if shards is not None:
        return _whole(shards)
    if magic:
        return _whole(_glob(path))
    refuse_unfinished_file(path)
    stat_of(path)  # raises FileNotFoundError
    return [FileRange(path)]


def _whole(paths: list[str]) -> list[FileRange]:
    return [FileRange(path) for path in paths]


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except PermissionError:
        raise
    except OSError:  # includes patterns that cannot be file names: too long, or with characters the system refuses
        return None


def _range(path: str) -> FileRange | None:
    match = _RANGE.fullmatch(path)
    if match is None or not os.path.isfile(match[1]):
        return None
    start = int(match[2] or 0)
    stop = int(match[3]) if match[3] else None
    if stop is not None and start > stop:
        raise ValueError(f"the range of {path!r} ends before it starts: {start} > {stop}; swap the two numbers")
    return FileRange(match[1], start, stop)


def _numbered(path: str, magic: bool) -> list[str] | None:
    """The shards of `name@N`. None if the path does not have that form, or if it can still be a glob."""
    folder, base = os.path.split(path)
    match = _NUMBERED.fullmatch(base)
    if match is None:
        return None
    name, count = match[1], int(match[2])
    if count == 0:
        raise ValueError(f"{path!r} asks for 0 shards; the number after @ must be at least 1")
    wanted = _conventions(name)
    paths: list[str] = []
    other_counts: set[int] = set()
    for entry in _entries(folder):
        shard = _SHARD.fullmatch(entry.name)
        if shard is None or (shard[1], shard[4]) not in wanted or not _is_readable(entry):
            continue
        if int(shard[3]) == count:
            paths.append(os.path.join(folder, entry.name))
        else:
            other_counts.add(int(shard[3]))
    refuse_unfinished(folder, lambda name: (found := _SHARD.fullmatch(name)) and (found[1], found[4]) in wanted)
    if not paths:
        if magic:
            return None
        tried = [repr(os.path.join(folder, _shard_name(prefix, 0, count, suffix))) for prefix, suffix in wanted]
        hint = ", or another record suffix" if len(tried) > 2 else ""
        if other_counts:
            hint += f"; there are shards with other counts: {', '.join(map(str, sorted(other_counts)[:_NAMED]))}"
        raise _not_found(f"no shard of {path!r} exists: tried {tried[0]} and {tried[1]}{hint}")
    sets = _shard_sets(sorted(paths))
    if len(sets) > 1:
        names = " and ".join(repr(found.pattern) for found in sets)
        raise ValueError(f"{path!r} matches more than one set of shards: {names}; pass the glob of one set")
    sets[0].check()
    return [shard for _, shard in sorted(sets[0].members.items())]


def _shards_hint(path: str) -> str:
    """If a name has shards, the text of a hint on what to pass to read them. Else an empty string."""
    folder, name = os.path.split(path)
    wanted = set(_conventions(name)) if name else set()
    found: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
    with suppress(OSError):  # a folder that cannot be listed
        for entry in _entries(folder):
            shard = _SHARD.fullmatch(entry.name)
            if shard is not None and (shard[1], shard[4]) in wanted and _is_readable(entry):
                found[int(shard[3])].add((shard[1], shard[4]))
    ways: list[str] = []
    for count, kinds in sorted(found.items()):
        if len(kinds) == 1:
            ways.append(f"{path}@{count}")
        else:  # both conventions, or several suffixes: only a glob can choose one of them
            ways += [_ShardSet(folder, *kind, f"{count:05}", _MIN_DIGITS).pattern for kind in sorted(kinds)]
    if not ways:
        return ""
    more = f" (and {len(ways) - _NAMED} more sets)" if len(ways) > _NAMED else ""
    return f"there are shards of that name; to read them, pass {' or '.join(map(repr, ways[:_NAMED]))}{more}"


def _conventions(name: str) -> list[tuple[str, str]]:
    """The text before and after the number in the names of the shards of `name`. The likeliest pair comes first."""
    prefix, suffix = _split_suffix(name)
    if suffix:
        return [(prefix, suffix), (name, "")]
    pairs = [(name, "")]
    pairs += [(name, suffix) for suffix in RECORD_SUFFIXES]
    pairs += [(name + suffix, "") for suffix in RECORD_SUFFIXES]
    prefix, suffix = os.path.splitext(name)
    return [*pairs, (prefix, suffix)] if suffix else pairs


def _glob(pattern: str) -> list[str]:
    matches = sorted(set(glob.glob(pattern, recursive=True)))  # two ** in one pattern find a file twice
    files = [match for match in matches if not os.path.isdir(match)]
    refuse_unfinished_matches(pattern)
    if files:
        _check_sets(files)
        return files
    if matches:
        message = "the pattern matches only folders, not files; add '/*' to match the files in them"
    elif part := _RANGE.fullmatch(pattern):
        refuse_unfinished_file(part[1])
        message = "no file matches the pattern; for a range, pass the name of an existing file before [a:b]"
        if hint := _shards_hint(part[1]):
            message += f"; {hint}, and slice the records"
    else:
        message = "no file matches the pattern"
    raise FileNotFoundError(errno.ENOENT, message, pattern)


def _folder(folder: str) -> list[str]:
    paths: list[str] = []
    suffixes: Counter[str] = Counter()
    for entry in _entries(folder):
        suffix = "" if entry.name.startswith(".") else _record_suffix(entry.name)
        if suffix and _is_readable(entry):
            paths.append(os.path.join(folder, entry.name))
            suffixes[suffix] += 1
    refuse_unfinished(folder)
    if not paths:
        raise _not_found(
            f"the folder {folder!r} contains no file that ends in {', '.join(RECORD_SUFFIXES)}; "
            "pass a glob to read files with other names"
        )
    kinds = sorted({RECORD_SUFFIXES[suffix] for suffix in suffixes})
    if len(kinds) > 1:
        likeliest = max(sorted(suffixes), key=suffixes.__getitem__)
        pattern = os.path.join(glob.escape(folder), f"*{likeliest}*")
        raise ValueError(
            f"the folder {folder!r} contains files of different formats: {', '.join(kinds)}; "
            f"choose one format with a glob such as {pattern!r}"
        )
    paths.sort()
    _check_sets(paths)
    return paths


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yields the entries of a folder. Yields nothing if the folder does not exist."""
    try:
        entries = os.scandir(folder or os.curdir)
    except FileNotFoundError:
        return
    with entries:
        yield from entries


def _is_readable(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a file or a broken link. A broken link must fail to open, not be skipped."""
    return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))


def _split_suffix(name: str) -> tuple[str, str]:
    for suffix in RECORD_SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix), suffix
    return name, ""


def _record_suffix(name: str) -> str:
    """The record suffix of a name, with or without a shard number. "" if it has none."""
    suffix = _split_suffix(name)[1]
    if not suffix and (match := _SHARD.fullmatch(name)) and not match[4]:
        suffix = _split_suffix(match[1])[1]
    return suffix


def _shard_name(prefix: str, index: int, count: int, suffix: str) -> str:
    digits = max(_MIN_DIGITS, len(str(count)))
    return f"{prefix}-{index:0{digits}}-of-{count:0{digits}}{suffix}"


@dataclass(slots=True)
class _ShardSet:
    """The shards that were found of one set, by number."""

    folder: str
    prefix: str
    suffix: str
    of: str  # the count as it is in the names: 00010
    index_digits: int
    members: dict[int, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return int(self.of)

    @property
    def pattern(self) -> str:
        stem = glob.escape(os.path.join(self.folder, self.prefix))
        return f"{stem}-*-of-{self.of}{glob.escape(self.suffix)}"

    def add(self, index: int, path: str) -> None:
        if index >= self.count:
            raise ValueError(
                f"{path!r} has the number {index}, but in a set of {self.count} shards the largest is "
                f"{self.count - 1}; remove or rename the file"
            )
        if index in self.members:
            raise ValueError(
                f"{self.members[index]!r} and {path!r} are both shard {index} of {self.count}; remove one of them"
            )
        self.members[index] = path

    def check(self) -> None:
        """Raises if a shard is missing. The time depends on the shards found, not on the count in the names."""
        lacking = self.count - len(self.members)
        if not lacking:
            return
        first = list(islice((index for index in range(self.count) if index not in self.members), _NAMED))
        names = ", ".join(f"{self.prefix}-{index:0{self.index_digits}}-of-{self.of}{self.suffix}" for index in first)
        more = f" and {lacking - len(first)} more" if lacking > len(first) else ""
        what = f"shard {first[0]} of {self.count} is" if lacking == 1 else f"{lacking} of {self.count} shards are"
        raise _not_found(
            f"{what} missing: {names}{more} ({len(self.members)} of {self.count} found in "
            f"{self.folder or os.curdir}); pass an explicit list of files to read an incomplete set"
        )


def _shard_sets(paths: list[str]) -> list[_ShardSet]:
    """The sets of shards that the paths belong to. Paths that are not shards are left out."""
    sets: dict[tuple[str, str, str, str], _ShardSet] = {}
    for path in paths:
        folder, name = os.path.split(path)
        match = _SHARD.fullmatch(name)
        if match is None:
            continue
        prefix, index, of, suffix = match.groups()
        key = (folder, prefix, suffix, of)
        found = sets.get(key)
        if found is None:
            found = sets[key] = _ShardSet(folder, prefix, suffix, of, len(index))
        found.add(int(index), path)
    return list(sets.values())


def _check_sets(paths: list[str]) -> None:
    """Raises if a set is incomplete, or exists with two counts, one of them left from an older write."""
    sets = _shard_sets(paths)
    seen: dict[tuple[str, str, str], _ShardSet] = {}
    for found in sets:
        other = seen.setdefault((found.folder, found.prefix, found.suffix), found)
        if other is not found:
            raise ValueError(
                "shards of two sets are mixed: "
                f"{other.pattern!r} ({len(other.members)} of {other.count} found) and "
                f"{found.pattern!r} ({len(found.members)} of {found.count} found); "
                "remove the older set, or pass the glob of the set that you want to read"
            )
    for found in sets:
        found.check()
