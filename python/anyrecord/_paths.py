"""From what the caller names to the files that are meant, and the names of the shards of one output.

A source is a file, a folder, a glob, `name@N`, `file[a:b]`, or an iterable of those. If a file with exactly that name
exists, it is used, whatever characters its name has. Only a `str` can be a pattern: a path object (`os.PathLike`) is
one file or folder.

Shards are numbered in either of two places, and both are understood everywhere:

    train-00000-of-00016.array_record      before the suffix: Beam, and what `shard_paths` gives
    train.array_record-00000-of-00016      after the suffix: TFDS

An N-of-M set that lacks a member is an error for `name@N`, a folder and a glob, never for an explicit list.
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
    """One file, or the records from `start` up to `stop` of it.

    >>> FileRange("train.array_record")
    FileRange(path='train.array_record', start=0, stop=None)
    """

    path: str
    start: int = 0
    stop: int | None = None


def expand(source: StrPath | Iterable[StrPath]) -> list[FileRange]:
    """The files that `source` names, in reading order.

    - an existing file: that file
    - an existing folder: the record files directly in it, in the order of their names
    - `file[a:b]`: the records from a up to b of one existing file; either may be left out
    - `name@N`: the N shards of `name`, in the order of their numbers
    - a glob, where `**` means any depth: the files that match, in the order of their paths
    - an iterable of these: each in turn (a `set`, which has no order, in the order of the strings)

    An `os.PathLike` is an existing file or folder and nothing else.

    Raises FileNotFoundError where nothing is found or a shard is missing, ValueError where what is found is
    ambiguous, and TypeError for anything but paths.
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
    """`os.stat`, whose error says so where there is no file of that name, but shards of it."""
    try:
        return os.stat(path)
    except FileNotFoundError as error:
        refuse_unfinished_file(path)
        hint = _shards_hint(path)
        if not hint:
            raise
        raise FileNotFoundError(errno.ENOENT, f"{error.strerror}; {hint}", path) from None


def shard_paths(path: str, count: int) -> list[str]:
    """The names of the `count` shards that are written for `path`.

    >>> shard_paths("train.array_record", 2)
    ['train-00000-of-00002.array_record', 'train-00001-of-00002.array_record']
    >>> shard_paths("train", 1)
    ['train-00000-of-00001']
    """
    if count < 1:
        raise ValueError(f"the number of shards must be at least 1, found {count}")
    folder, name = os.path.split(path)
    if not name:
        raise ValueError(f"{path!r} has no file name to number; pass one such as 'train.array_record'")
    prefix, suffix = _split_suffix(name)
    return [os.path.join(folder, _shard_name(prefix, index, count, suffix)) for index in range(count)]


def renamed(name: str, suffix: str) -> str:
    """A file name with another record suffix, and its shard number where it was.

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
        # Where no suffix tells which way the shards are named, ours comes last as in the names that we give.
        return f"{stem}{suffix}{number}" if old else f"{name}{suffix}"
    return prefix + suffix


def set_name(name: str) -> str | None:
    """The file name whose shards `shard_paths` would call so; None where it is no name of a shard.

    >>> set_name("train-00000-of-00002.array_record")
    'train.array_record'
    """
    match = _SHARD.fullmatch(name)
    return None if match is None else match[1] + match[4]


def existing_shards(path: str) -> list[str]:
    """The files that are there now and that `shard_paths(path, count)` names for some count.

    Sorted by count, then by number. What overwriting `path` has to replace, so members of incomplete sets and
    links that lead nowhere are included.
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
        except (FileNotFoundError, ValueError):  # a set that was replaced while we looked is found the next time
            continue
    return _find(path)


def _find(path: StrPath) -> list[FileRange]:
    text = _text(path)
    if isinstance(path, str):
        refuse_url(text)
    else:
        refuse_mangled_url(path)
    mode = _mode(text)
    if mode is not None:
        return _whole(_folder(text)) if stat.S_ISDIR(mode) else [FileRange(text)]
    return _pattern(text) if isinstance(path, str) else _missing(text)


def _missing(path: str) -> list[FileRange]:
    """Raises what belongs to a path object that is no file."""
    try:
        stat_of(path)
    except FileNotFoundError as error:
        if not _MAGIC.search(path) and not _NUMBERED.fullmatch(path):
            raise
        text = f"{error.strerror}; a path object is one file or folder, so pass a str for a pattern, a set or a range"
        raise FileNotFoundError(errno.ENOENT, text, path) from None
    return [FileRange(path)]  # it has appeared since


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
    stat_of(path)  # raises the error that belongs to this path
    return [FileRange(path)]


def _whole(paths: list[str]) -> list[FileRange]:
    return [FileRange(path) for path in paths]


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except PermissionError:
        raise
    except OSError:  # also a pattern that no file name can be: too long, or with characters the system refuses
        return None


def _range(path: str) -> FileRange | None:
    match = _RANGE.fullmatch(path)
    if match is None or not os.path.isfile(match[1]):
        return None
    start = int(match[2] or 0)
    stop = int(match[3]) if match[3] else None
    if stop is not None and start > stop:
        raise ValueError(f"the range of {path!r} ends before it starts: expected start <= stop, found {start} > {stop}")
    return FileRange(match[1], start, stop)


def _numbered(path: str, magic: bool) -> list[str] | None:
    """The members of `name@N`; None where the path is not of that form, or may still be a glob."""
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
        raise ValueError(f"{path!r} can mean more than one set: {names}; pass the glob of the one to read")
    sets[0].check()
    return [shard for _, shard in sorted(sets[0].members.items())]


def _shards_hint(path: str) -> str:
    """Where there are shards of a name: what to pass to read them. Else nothing."""
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
        else:  # both conventions, or several suffixes: only a glob tells them apart
            ways += [_ShardSet(folder, *kind, f"{count:05}", _MIN_DIGITS).pattern for kind in sorted(kinds)]
    if not ways:
        return ""
    more = f" (and {len(ways) - _NAMED} more sets)" if len(ways) > _NAMED else ""
    return f"there are shards of that name: pass {' or '.join(map(repr, ways[:_NAMED]))}{more}"


def _conventions(name: str) -> list[tuple[str, str]]:
    """What can stand before and after the numbers of the shards of `name`, the likeliest first."""
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
        message = "only folders match the pattern, and a glob reads files; add '/*' for the files in them"
    elif part := _RANGE.fullmatch(pattern):
        refuse_unfinished_file(part[1])
        message = "no file matches the pattern, and a range [a:b] needs the name of one existing file before it"
        if hint := _shards_hint(part[1]):
            message += f"; {hint}, and slice what it opens"
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
            f"no record file is directly in the folder {folder!r}: looked for {', '.join(RECORD_SUFFIXES)}; "
            "pass a glob to read files with other names"
        )
    kinds = sorted({RECORD_SUFFIXES[suffix] for suffix in suffixes})
    if len(kinds) > 1:
        likeliest = max(sorted(suffixes), key=suffixes.__getitem__)
        pattern = os.path.join(glob.escape(folder), f"*{likeliest}*")
        raise ValueError(
            f"the folder {folder!r} mixes files of different formats: {', '.join(kinds)}; "
            f"choose one with a glob such as {pattern!r}"
        )
    paths.sort()
    _check_sets(paths)
    return paths


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder; nothing where there is no such folder."""
    try:
        entries = os.scandir(folder or os.curdir)
    except FileNotFoundError:
        return
    with entries:
        yield from entries


def _is_readable(entry: os.DirEntry[str]) -> bool:
    """A file, or a link that leads nowhere: that must fail to open rather than go unnoticed."""
    return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))


def _split_suffix(name: str) -> tuple[str, str]:
    for suffix in RECORD_SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix), suffix
    return name, ""


def _record_suffix(name: str) -> str:
    """The record suffix of a name, numbered as a shard or not; "" where it has none."""
    suffix = _split_suffix(name)[1]
    if not suffix and (match := _SHARD.fullmatch(name)) and not match[4]:
        suffix = _split_suffix(match[1])[1]
    return suffix


def _shard_name(prefix: str, index: int, count: int, suffix: str) -> str:
    digits = max(_MIN_DIGITS, len(str(count)))
    return f"{prefix}-{index:0{digits}}-of-{count:0{digits}}{suffix}"


@dataclass(slots=True)
class _ShardSet:
    """The members found of one N-of-M set, by number."""

    folder: str
    prefix: str
    suffix: str
    of: str  # the count as the names spell it: 00010
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
                f"{path!r} is numbered {index} of {self.count}: expected at most {self.count - 1}; "
                "remove or rename the file"
            )
        if index in self.members:
            raise ValueError(f"{self.members[index]!r} and {path!r} are both shard {index} of {self.count}; remove one")
        self.members[index] = path

    def check(self) -> None:
        """Raises where a member is missing; takes as long as the members found, whatever the count says."""
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
    """The N-of-M sets that the paths are members of; other paths are left out."""
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
    """Raises where a set is incomplete, or there with two counts: one is left from an older write."""
    sets = _shard_sets(paths)
    seen: dict[tuple[str, str, str], _ShardSet] = {}
    for found in sets:
        other = seen.setdefault((found.folder, found.prefix, found.suffix), found)
        if other is not found:
            raise ValueError(
                "shards of two sets are mixed: "
                f"{other.pattern!r} ({len(other.members)} of {other.count} found) and "
                f"{found.pattern!r} ({len(found.members)} of {found.count} found); "
                "remove the older set, or pass the glob of the one to read"
            )
    for found in sets:
        found.check()
