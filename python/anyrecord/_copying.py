"""What `convert` and `salvage` share: which source becomes which target, and that all targets appear together."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from anyrecord import _core
from anyrecord._dataclasses import dataclass, replace
from anyrecord._locations import file_name, is_url, shown
from anyrecord._object_sets import (
    existing_object_shards,
    existing_objects,
    journal_url,
    publish_objects,
    refuse_existing,
    refuse_interrupted_objects,
    refuse_web_set,
)
from anyrecord._options import OpenOptions
from anyrecord._paths import FileRange
from anyrecord._shard_names import existing_shards, renamed
from anyrecord._targets import Destination, is_folder_name, refuse_interrupted, refuse_unwritable
from anyrecord._writer import Creating, Writer, check_objects, warn_of_leftovers
from anyrecord.errors import RecordError

__all__ = ["Target", "check_published", "check_targets", "cores", "is_folder_target", "one_to_one", "plan", "publish"]


@dataclass(frozen=True, slots=True)
class Target:
    """A file to write, and the source files whose records it gets."""

    path: str
    files: list[FileRange]


def is_folder_target(name: str, format: str | None, sharding: tuple[str, int]) -> bool:
    """Whether the target is a folder, which gets one file for each source file."""
    if is_folder_name(name):
        refuse_web_set(name)
    elif is_url(name) or not os.path.isdir(name):
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
    is_trial: bool = False,
) -> list[Target]:
    """Returns the files to write. Raises now what would otherwise fail after the last record.

    With `keep_sources`, no source may be replaced, not even with `overwrite`. With `is_trial`, nothing is created.
    """
    targets = one_to_one(files, name, creating.format, options) if into_folder else [Target(name, files)]
    folder = name if into_folder else None
    check_targets(files, targets, creating, folder=folder, keep_sources=keep_sources, is_trial=is_trial)
    return targets


def check_targets(
    files: list[FileRange],
    targets: list[Target],
    creating: Creating,
    *,
    folder: str | None,
    keep_sources: bool = False,
    is_trial: bool = False,
) -> None:
    """Raises now what would otherwise fail after the last record. Creates the folder of the targets.

    `folder`: where the targets are, if each is made of one source. With `is_trial`, it is not created.
    """
    if is_url(targets[0].path):
        _check_objects(files, targets, creating, folder is not None, keep_sources)
        return
    sharded = creating.sharding[0] != "one"
    paths = [target.path for target in targets]
    for path in paths:
        refuse_interrupted(path, sharded=sharded)
    _refuse_loss(files, paths, creating, keep_sources)
    if folder is not None and is_trial and not os.path.lexists(folder):
        _refuse_missing(folder)
        return
    if folder is not None:
        os.makedirs(folder, exist_ok=True)
        _refuse_links_out(paths)
    for path in paths:
        refuse_unwritable(path, sharded=sharded)


def _check_objects(
    files: list[FileRange], targets: list[Target], creating: Creating, into_folder: bool, keep_sources: bool
) -> None:
    """Raises if an object would be overwritten without permission, or a source replaced by another file's copy."""
    urls = [target.path for target in targets]
    to = Destination(urls[0], creating.storage)
    sources = {file.path: number for number, file in enumerate(files) if not file.is_local}
    if not into_folder:
        check_objects(to, creating)
        replaced = existing_object_shards(to) if creating.sharding[0] != "one" and creating.overwrite else urls
        for url in replaced:
            if url in sources and (keep_sources or creating.sharding[0] != "one"):
                raise ValueError(f"{shown(url)!r} is a source, which is never replaced here; choose another target")
        return
    for url in urls:
        refuse_interrupted_objects(Destination(url, creating.storage), sharded=False)
    if not creating.overwrite:
        refuse_existing(existing_objects(urls, to), "it")
    for number, url in enumerate(urls):
        if url in sources and (keep_sources or sources[url] != number):
            raise ValueError(f"{shown(url)!r} is a source and would be replaced; choose another target")


def cores() -> int:
    """How many cores this process may use."""
    # `os.process_cpu_count` exists only from Python 3.13 on.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def one_to_one(files: list[FileRange], folder: str, format: str, options: dict[str, object]) -> list[Target]:
    """The files of a folder that gets one file for each source file."""
    suffix = _suffix(format, options)
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


def _refuse_missing(folder: str) -> None:
    """Raises the error that creating this folder, and those above it, would raise."""
    above = os.path.abspath(folder)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    refuse_unwritable(os.path.join(above, "any"), sharded=False)


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
    if is_url(paths[0]):
        to, journal = Destination(paths[0], written[0]._storage), journal_url(paths[0], is_folder=True)
        publish_objects(written, journal, overwrite, paths, lambda: existing_objects(paths, to))
        for writer, path in zip(written, paths, strict=True):
            writer._names = [path]
        return
    folder = os.path.dirname(paths[0])
    left = _core.publish_set(written, _core.journal_path(folder, True), overwrite, None)
    for writer, path in zip(written, paths, strict=True):
        writer._names = [path]
    warn_of_leftovers(folder or os.curdir, left)


def check_published(written: Sequence[Writer], reading: OpenOptions, threads: int) -> None:
    """Reads published objects again. If their records are not those that were written, deletes them and raises.

    Local files are checked before they are published. An object cannot be read before that.
    """
    objects = [writer for writer in written if writer._path is not None and is_url(writer._path)]
    try:
        for writer in objects:
            options = replace(reading, storage=writer._storage, root=None, store=None)
            writer._check_published(writer._names or [], options, threads)
    except RecordError:
        for writer in objects:
            _core.delete_objects(writer._names or [], list(writer._storage))
        raise
