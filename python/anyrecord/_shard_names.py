"""The names of shards, and the sets that they belong to.

The number of a shard is in one of two places. Both are understood everywhere:

    train-00000-of-00016.array_record      before the suffix: Beam, and `shard_paths`
    train.array_record-00000-of-00016      after the suffix: TFDS
"""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from anyrecord import _core
from anyrecord._locations import is_url
from anyrecord._trees import Entry, Tree

__all__ = [
    "MIN_DIGITS",
    "NAMED",
    "RECORD_SUFFIXES",
    "SHARD",
    "ShardSet",
    "check_sets",
    "conventions",
    "existing_shards",
    "record_suffix",
    "renamed",
    "set_name",
    "shard_name",
    "shard_paths",
    "shard_sets",
    "shards_among",
]

RECORD_SUFFIXES: Final[dict[str, str]] = dict(_core.suffixes())
"""Each suffix of a record file, with its format."""

MIN_DIGITS: Final = 5
"""How many digits a shard number has at least."""
NAMED: Final = 3
"""How many files an error names."""
SHARD: Final = re.compile(r"(.*)-([0-9]{5,})-of-([0-9]{5,})((?:\..*)?)", re.DOTALL)


def shard_paths(path: str, count: int) -> list[str]:
    """Returns the names of the `count` shards that are written for `path`.

    >>> shard_paths("train.array_record", 2)
    ['train-00000-of-00002.array_record', 'train-00001-of-00002.array_record']
    >>> shard_paths("train", 1)
    ['train-00000-of-00001']
    """
    if count < 1:
        raise ValueError(f"the number of shards must be at least 1, not {count}")
    if is_url(path):
        folder, slash, name = path.rpartition("/")
        folder += slash
    else:
        folder, name = os.path.split(path)
    if not name:
        raise ValueError(f"{path!r} has no file name to number; pass one such as 'train.array_record'")
    prefix, suffix = _split_suffix(name)
    return [os.path.join(folder, shard_name(prefix, index, count, suffix)) for index in range(count)]


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
    if not old and (match := SHARD.fullmatch(name)) and not match[4]:
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
    match = SHARD.fullmatch(name)
    return None if match is None else match[1] + match[4]


def existing_shards(path: str) -> list[str]:
    """Returns the existing files that `shard_paths(path, count)` names for any count, sorted by count and number.

    Overwriting `path` must replace all of them, so shards of incomplete sets and broken links are included.
    """
    folder, name = os.path.split(path)
    try:
        entries = os.scandir(folder or os.curdir)
    except FileNotFoundError:
        return []
    with entries:
        named = ((entry.name, os.path.join(folder, entry.name)) for entry in entries if not entry.is_dir())
        return shards_among(name, named)


def shards_among(name: str, entries: Iterable[tuple[str, str]]) -> list[str]:
    """The paths of those files, `(name, path)` each, that `shard_paths(name, count)` names for any count."""
    own = _split_suffix(name)
    found: list[tuple[int, int, str]] = []
    for other, path in entries:
        match = SHARD.fullmatch(other)
        if match is None or (match[1], match[4]) != own:
            continue
        index, count = int(match[2]), int(match[3])
        if index < count and other == shard_name(own[0], index, count, own[1]):
            found.append((count, index, path))
    return [shard for _, _, shard in sorted(found)]


def conventions(name: str) -> list[tuple[str, str]]:
    """The text before and after the number in the names of the shards of `name`. The likeliest pair comes first."""
    prefix, suffix = _split_suffix(name)
    if suffix:
        return [(prefix, suffix), (name, "")]
    pairs = [(name, "")]
    pairs += [(name, suffix) for suffix in RECORD_SUFFIXES]
    pairs += [(name + suffix, "") for suffix in RECORD_SUFFIXES]
    prefix, suffix = os.path.splitext(name)
    return [*pairs, (prefix, suffix)] if suffix else pairs


def _split_suffix(name: str) -> tuple[str, str]:
    for suffix in RECORD_SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix), suffix
    return name, ""


def record_suffix(name: str) -> str:
    """The record suffix of a name, with or without a shard number. "" if it has none."""
    suffix = _split_suffix(name)[1]
    if not suffix and (match := SHARD.fullmatch(name)) and not match[4]:
        suffix = _split_suffix(match[1])[1]
    return suffix


def shard_name(prefix: str, index: int, count: int, suffix: str) -> str:
    digits = max(MIN_DIGITS, len(str(count)))
    return f"{prefix}-{index:0{digits}}-of-{count:0{digits}}{suffix}"


class ShardSet:
    """The shards that were found of one set, by number. `of` is the count as it is in the names: 00010."""

    def __init__(self, folder: str, prefix: str, suffix: str, of: str, index_digits: int, tree: Tree) -> None:
        self.folder, self.prefix, self.suffix, self.of = folder, prefix, suffix, of
        self.index_digits = index_digits
        self.tree = tree
        self.members: dict[int, Entry] = {}

    @property
    def count(self) -> int:
        return int(self.of)

    @property
    def pattern(self) -> str:
        stem = glob.escape(self.tree.join(self.tree.shown(self.folder), self.prefix))
        return f"{stem}-*-of-{self.of}{glob.escape(self.suffix)}"

    def add(self, index: int, entry: Entry) -> None:
        if index >= self.count:
            raise ValueError(
                f"{self.tree.shown(entry.path)!r} has the number {index}, but in a set of {self.count} shards the "
                f"largest is {self.count - 1}; remove or rename the file"
            )
        if index in self.members:
            both = [self.tree.shown(found.path) for found in (self.members[index], entry)]
            raise ValueError(f"{both[0]!r} and {both[1]!r} are both shard {index} of {self.count}; remove one of them")
        self.members[index] = entry

    def check(self) -> None:
        """Raises if a shard is missing. The time depends on the shards found, not on the count in the names."""
        lacking = self.count - len(self.members)
        if not lacking:
            return
        first = list(islice((index for index in range(self.count) if index not in self.members), NAMED))
        names = ", ".join(f"{self.prefix}-{index:0{self.index_digits}}-of-{self.of}{self.suffix}" for index in first)
        more = f" and {lacking - len(first)} more" if lacking > len(first) else ""
        what = f"shard {first[0]} of {self.count} is" if lacking == 1 else f"{lacking} of {self.count} shards are"
        raise FileNotFoundError(
            errno.ENOENT,
            f"{what} missing: {names}{more} ({len(self.members)} of {self.count} found in "
            f"{self.tree.shown(self.folder) or os.curdir}); pass an explicit list of files to read an incomplete set",
        )


def shard_sets(entries: Iterable[Entry], tree: Tree) -> list[ShardSet]:
    """The sets of shards that the files belong to. Files that are not shards are left out."""
    sets: dict[tuple[str, str, str, str], ShardSet] = {}
    for entry in entries:
        folder, name = tree.split(entry.path)
        match = SHARD.fullmatch(name)
        if match is None:
            continue
        prefix, index, of, suffix = match.groups()
        key = (folder, prefix, suffix, of)
        found = sets.get(key)
        if found is None:
            found = sets[key] = ShardSet(folder, prefix, suffix, of, len(index), tree)
        found.add(int(index), entry)
    return list(sets.values())


def check_sets(entries: Iterable[Entry], tree: Tree) -> None:
    """Raises if a set is incomplete, or exists with two counts, one of them left from an older write."""
    sets = shard_sets(entries, tree)
    seen: dict[tuple[str, str, str], ShardSet] = {}
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
