"""What `convert` and `salvage` share: which source becomes which target, and that all targets appear together."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from anyrecord import _core
from anyrecord._dataclasses import dataclass
from anyrecord._locations import file_name, shown
from anyrecord._paths import FileRange
from anyrecord._shard_names import existing_shards, renamed
from anyrecord._targets import is_folder_name, refuse_interrupted, refuse_unwritable
from anyrecord._writer import Creating, Writer, warn_of_leftovers

__all__ = ["Target", "cores", "is_folder_target", "plan", "publish"]


@dataclass(frozen=True, slots=True)
class Target:
    """A file to write, and the source files whose records it gets."""

    path: str
    files: list[FileRange]


def is_folder_target(name: str, format: str | None, sharding: tuple[str, int]) -> bool:
    """Whether the target is a folder, which gets one file for each source file."""
    if not os.path.isdir(name) and not is_folder_name(name):
        return False
    if format is None:
        raise ValueError(f"{name} is a folder: pass format= to choose the format of the new files")
    if sharding[0] != "one":
        raise ValueError(f"{name} is a folder, which gets one file for each source; pass a file name to write shards")
    return True


def plan(
    files: list[FileRange],
    name: str,
    creating: Creating,
    options: dict[str, object],
    *,
    into_folder: bool,
    keep_sources: bool = False,
) -> list[Target]:
    """Returns the files to write. Raises now what would otherwise fail after the last record.

    With `keep_sources`, no source may be replaced, not even with `overwrite`.
    """
    targets = _one_to_one(files, name, creating, options) if into_folder else [Target(name, files)]
    sharded = creating.sharding[0] != "one"
    paths = [target.path for target in targets]
    for path in paths:
        refuse_interrupted(path, sharded=sharded)
    _refuse_loss(files, paths, creating, keep_sources)
    if into_folder:
        os.makedirs(name, exist_ok=True)
        _refuse_links_out(paths)
    for path in paths:
        refuse_unwritable(path, sharded=sharded)
    return targets


def cores() -> int:
    """How many cores this process may use."""
    # `os.process_cpu_count` exists only from Python 3.13 on.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _one_to_one(files: list[FileRange], folder: str, creating: Creating, options: dict[str, object]) -> list[Target]:
    suffix = _suffix(creating.format, options)
    targets: dict[str, FileRange] = {}
    for file in files:
        path = os.path.join(folder, renamed(file_name(file.path), suffix))
        other = targets.setdefault(path, file)
        if other is not file:
            both = f"{shown(other.path)!r} and {shown(file.path)!r}"
            raise ValueError(f"{both} would both become {path!r}; write one of them to another folder")
    return [Target(path, [file]) for path, file in targets.items()]


def _suffix(format: str, options: dict[str, object]) -> str:
    suffixes = [suffix for suffix, of in _core.suffixes() if of == format]
    if not suffixes:
        known = ", ".join(sorted({of for _, of in _core.suffixes()}))
        raise ValueError(f"format={format!r} cannot be written to a folder; pass one of {known}")
    wrapped = {"gzip": ".gz", "zlib": ".zlib"}.get(str(options.get("codec")), "")
    return suffixes[0] + wrapped if suffixes[0] + wrapped in suffixes else suffixes[0]


def _refuse_loss(files: list[FileRange], targets: list[str], creating: Creating, keep_sources: bool) -> None:
    """Raises if a file would be overwritten without permission, or a source replaced by another file's copy."""
    sources = {_identity(file.path): file.path for file in files if file.is_local}
    if creating.sharding[0] != "one":
        replaced = existing_shards(targets[0])
        if replaced and not creating.overwrite:
            text = f"{os.strerror(errno.EEXIST)}; pass overwrite=True to replace the {len(replaced)} shards there"
            raise FileExistsError(errno.EEXIST, text, replaced[0])
        for old in replaced:
            if _identity(old) in sources:
                raise ValueError(f"{old!r} is a source and would be replaced by the new shards; choose another target")
        return
    for number, target in enumerate(targets):
        if not os.path.lexists(target):
            continue
        source = sources.get(_identity(target))
        if source is not None and keep_sources:
            raise ValueError(f"{target!r} is a source, which is never replaced; choose another target")
        if not creating.overwrite:
            hint = "; it is a source" if source is not None else ""
            text = f"{os.strerror(errno.EEXIST)}{hint}; pass overwrite=True to replace it"
            raise FileExistsError(errno.EEXIST, text, target)
        # A target can be another source through a link. Only the copy of a source may replace that source.
        if source is not None and len(targets) > 1 and source != files[number].path:
            raise ValueError(
                f"{target!r} is the source {source!r} and would be replaced by the copy of {files[number].path!r}; "
                "choose another target"
            )


def _refuse_links_out(targets: list[str]) -> None:
    """Raises if links put two targets into different folders, or make them one file: a set needs one folder."""
    if len(targets) == 1:
        return
    real: dict[str, str] = {}
    for target in targets:
        path = os.path.realpath(target)
        if os.path.exists(path) and not os.path.isfile(path):
            continue  # a pipe or a device is written to directly
        if os.path.dirname(path) != os.path.realpath(os.path.dirname(target)):
            raise ValueError(f"{target!r} is a link to a file in another folder; write this file in a separate call")
        other = real.setdefault(path, target)
        if other is not target:
            raise ValueError(f"{other!r} and {target!r} are the same file; write one of them to another folder")


def _identity(path: str) -> object:
    try:
        found = os.stat(path)
    except FileNotFoundError:  # a broken link
        return path
    return found.st_dev, found.st_ino


def publish(written: Sequence[Writer], overwrite: bool) -> None:
    """Publishes all files or none."""
    if len(written) == 1:
        written[0]._publish_sealed()
        return
    paths = [writer._path or "" for writer in written]
    folder = os.path.dirname(paths[0])
    left = _core.publish_set(written, _core.journal_path(folder, True), overwrite, None)
    for writer, path in zip(written, paths, strict=True):
        writer._names = [path]
    warn_of_leftovers(folder or os.curdir, left)
