"""`copy`: whole files, byte by byte, from any place to any other."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeAlias

from anyrecord import _core
from anyrecord._calls import Progress, add_note
from anyrecord._copying import Target, check_published, check_targets, publish
from anyrecord._dataclasses import dataclass, replace
from anyrecord._locations import StrPath, file_name, is_url, is_web, shown
from anyrecord._object_sets import refuse_web_set
from anyrecord._options import OpenOptions, open_options
from anyrecord._paths import FileRange, expand, size_of, with_sizes
from anyrecord._publishing import Unchanged
from anyrecord._shard_names import set_name, shard_paths
from anyrecord._stores import Storage
from anyrecord._targets import Destination, destination, is_folder_name
from anyrecord._temporaries import Leftovers
from anyrecord._writer import Creating, Writer, new_writer

__all__ = ["Copied", "copy", "left_files", "left_objects", "planned", "remove_left_objects"]

_WHOLE = "_whole"
"""What the core calls files whose content does not matter."""
_NUMBERED = re.compile("(.*[^/])@([0-9]+)", re.DOTALL)
_SUFFIX = ".copied"
"""The end of the names of what a call leaves that did not come to its end."""

_LEFT = re.compile(r"\.(.+)\.([0-9a-f]{8})([0-9a-f]{8})?(?:-([0-9]+)-([0-9a-f]{16}))?\.copied", re.DOTALL)
"""The name of a target, hashes of its name and of its source, and the sum of its bytes. An object has only the first
hash in its name, so that there is one for each target."""
_LONGEST = 180
"""Bytes of a name that a hidden name contains. Of a longer one it contains the beginning."""

Left: TypeAlias = tuple[str | tuple[str, list[str], int], tuple[int, int] | None, bool]
"""Where a complete copy is, the sum of its bytes, and whether the store compared it."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What `copy` did."""

    files: int
    """How many files there are."""
    bytes: int
    """Their size."""
    continued: int
    """How many of them an earlier call had copied, which did not come to its end."""
    paths: tuple[str, ...]
    """The new files."""


def copy(
    sources: StrPath | Iterable[StrPath],
    target: StrPath,
    *,
    overwrite: bool = False,
    durable: bool = True,
    verify: bool = True,
    progress: Callable[[int, int], object] | None = None,
    storage: Storage | None = None,
    target_storage: Storage | None = None,
) -> Copied:
    """Copies whole files, byte by byte. Both sides can be local or URLs.

    >>> import anyrecord
    >>> with anyrecord.create("train.ffr", shards=2, overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> done = anyrecord.copy("train.ffr@2", "memory://copied/")
    >>> done.files, done.paths
    (2, ('memory://copied/train-00000-of-00002.ffr', 'memory://copied/train-00001-of-00002.ffr'))
    >>> len(anyrecord.open("memory://copied/train.ffr@2"))
    3

    `sources` takes the same paths as `open`, except ranges (`file[0:1000]`). The files can be damaged, or have any
    content: nobody looks at it.

    `target` is one of these:

    - an existing folder, or a name or a URL that ends in a slash: the files keep their names.
    - a file name, for one source.
    - `name@16`, for 16 sources: they become the shards of that name, in their order.

    - `overwrite`, `durable`: as for `create`.
    - `verify=False`: do not compare the copies with what was read. A local copy is read again before it is published.
      For an object, the checksum that the store computes of each part is compared. If a store computes none, the object
      is read again after it is published, and deleted if it differs.
    - `progress(done, total)` is called from time to time with bytes.
    - `storage`: the options of the sources' store, as for `open`. `target_storage`: those of the target's store.

    All files appear together or not at all. After an exception, Ctrl-C or a kill you can make the same call again.
    Files that were complete are not copied again, unless the source has changed: their copies wait under hidden names
    that end in `.copied`, in a store as uploads that nobody sees. If you do not want to continue, `recover` removes
    them; for a URL, pass `keep="old"`.
    """
    if progress is not None and not callable(progress):
        raise TypeError(f"progress needs a function, not {type(progress).__name__}")
    reading = open_options(format=_WHOLE, storage=storage)
    files = _whole_files(sources, reading)
    unchanged = Unchanged(files)
    files = with_sizes(files, reading)
    to = destination(target, target_storage)
    targets = _targets(files, to)
    creating = _creating(to, targets, overwrite, durable=durable, verify=verify)
    _check(files, targets, to, creating)
    paths = [target.path for target in targets]
    leftovers = None if to.is_url else Leftovers(paths, [file.path for file in files if file.is_local])
    job = _Job(reading, creating, progress, sum(map(size_of, files)), _identities(files, reading))
    with unchanged:
        continued = _copy(targets, job)
    if leftovers is not None:
        leftovers.remove()
    return Copied(files=len(targets), bytes=job.total, continued=continued, paths=tuple(map(shown, paths)))


def planned(
    sources: StrPath | Iterable[StrPath],
    target: StrPath,
    *,
    overwrite: bool = False,
    storage: Storage | None = None,
    target_storage: Storage | None = None,
) -> list[Target]:
    """Which file `copy` would make of which. Raises what it would raise before the first byte; writes nothing."""
    reading = open_options(format=_WHOLE, storage=storage)
    files, to = with_sizes(_whole_files(sources, reading), reading), destination(target, target_storage)
    targets = _targets(files, to)
    _check(files, targets, to, _creating(to, targets, overwrite, durable=False, verify=False), is_trial=True)
    return targets


def _whole_files(sources: StrPath | Iterable[StrPath], reading: OpenOptions) -> list[FileRange]:
    files = expand(sources, reading)
    for file in files:
        if (file.start, file.stop) != (0, None):
            raise ValueError(f"{shown(file.path)!r} has a range; copy copies whole files: use convert for some records")
    return files


def _creating(to: Destination, targets: list[Target], overwrite: bool, *, durable: bool, verify: bool) -> Creating:
    return Creating(
        format=_WHOLE,
        overwrite=bool(overwrite),
        durable=bool(durable),
        threads=0,
        sharding=("one", 0),
        num_records=None,
        tally=bool(verify),
        storage=to.storage,
        in_set=len(targets) > 1,
    )


def _check(
    files: list[FileRange], targets: list[Target], to: Destination, creating: Creating, *, is_trial: bool = False
) -> None:
    paths = [target.path for target in targets]
    for path in paths:
        _core.check_url(path)
    folder = None if paths == [to.name] else _folder(paths[0])
    check_targets(files, targets, creating, folder=folder, is_trial=is_trial)


def _folder(path: str) -> str:
    if not is_url(path):
        return os.path.dirname(path) or os.curdir
    path = shown(path) if is_web(path) else path  # without a query, which can have slashes
    return path[: path.rindex("/") + 1]


def _targets(files: list[FileRange], to: Destination) -> list[Target]:
    """Which file becomes which."""
    if is_folder_name(to.name) or (not to.is_url and os.path.isdir(to.name)):
        refuse_web_set(to.name)
        folder = to.name if is_folder_name(to.name) else f"{to.name}/"
        named: dict[str, FileRange] = {}
        for file in files:
            path = folder + _unquoted_name(file.path)
            if named.setdefault(path, file) is not file:
                both = f"{shown(named[path].path)!r} and {shown(file.path)!r}"
                raise ValueError(f"{both} would both become {shown(path)!r}; copy one of them to another folder")
        return [Target(path, [file]) for path, file in named.items()]
    if (shards := _NUMBERED.fullmatch(to.name)) is not None:
        name, count = shards[1], int(shards[2])
        if count != len(files):
            raise ValueError(f"{shown(to.name)!r} has {count} shards, but there are {len(files)} files to copy")
        return [Target(path, [file]) for path, file in zip(shard_paths(name, count), files, strict=True)]
    if len(files) > 1:
        raise ValueError(
            f"{len(files)} files cannot all be copied to {shown(to.name)!r}; pass a folder, which ends in a slash, or "
            f"name@{len(files)}"
        )
    return [Target(to.name, files)]


def _unquoted_name(path: str) -> str:
    """The name of a file. In the URL of a web server it is quoted."""
    name = file_name(path)
    if not is_web(path):
        return name
    from urllib.parse import unquote  # imported here because few programs need it

    unquoted = unquote(name)
    return name if {"/", "\0"} & set(unquoted) or unquoted in ("", ".", "..") else unquoted


@dataclass(frozen=True, slots=True)
class _Job:
    """What all files of one call share."""

    reading: OpenOptions
    creating: Creating
    progress: Callable[[int, int], object] | None
    total: int
    identities: dict[str, str | None]
    """A text for each source, which is another one if its content is. None: the source does not tell."""


def _identities(files: list[FileRange], reading: OpenOptions) -> dict[str, str | None]:
    urls = [file.path for file in files if not file.is_local] if reading.store is None else []
    found: dict[str, str | None] = {}
    if urls:
        found.update(zip(urls, _core.object_identities(urls, list(reading.storage)), strict=True))
    for file in files:
        if file.is_local:
            about = os.stat(file.path)
            found[file.path] = f"{about.st_dev} {about.st_ino} {about.st_size} {about.st_mtime_ns}"
    return found


def _copy(targets: list[Target], job: _Job) -> int:
    """Copies and publishes. Returns how many files were complete before."""
    done: list[tuple[Writer, _Kept]] = []
    before, continued, report = 0, 0, Progress(job.progress, job.total)
    try:
        for target in targets:
            keep = _Kept(target, job)
            last = done[-1][0] if done else None
            writer = _adopted(target, keep, job, last)
            continued += writer is not None
            done.append((writer or _written(target, job, before, last), keep))
            keep.remember(done[-1][0])
            before += size_of(target.files[0])
            report(before)
    except BaseException as error:
        there = sum(keep.is_there for _, keep in done)
        for writer, keep in done:
            writer._leave() if keep.is_there else writer._discard()
        if there:
            add_note(error, f"{there} of {len(targets)} files were copied; the same call continues after them")
        raise
    written = [writer for writer, _ in done]
    try:
        publish(written, job.creating.overwrite)
    except BaseException:
        if is_url(targets[0].path):
            # Their uploads are aborted, or finished by `recover`.
            for _, keep in done:
                with suppress(OSError):
                    keep.forget()
        raise
    finally:
        for writer in written:
            writer._discard()
    if job.creating.tally and not all(writer._is_compared() for writer in written):
        check_published(written, job.reading, 0)
    for _, keep in done:
        try:
            keep.forget()
        except OSError as error:
            warnings.warn(f"all files are copied, but a hidden object is left: {error}", RuntimeWarning, stacklevel=3)
    return continued


def _written(target: Target, job: _Job, before: int, last: Writer | None) -> Writer:
    """A complete copy, verified if it can be read before it is published."""
    source = target.files[0]
    step = None if job.progress is None else Progress(job.progress, job.total, before)
    writer = new_writer(target.path, replace(job.creating, together_with=last), {})
    writer._advice = "wait for copy to return before the program ends"
    try:
        _core.pour(writer, [(source.path, 0, None)], job.reading, None, None, step, size_of(source))
        writer._seal()
        if job.creating.tally:
            writer._check(job.reading, 0)
    except BaseException:
        writer._discard()
        raise
    return writer


class _Kept:
    """What is left of a complete copy that is not published, so that the next call need not make it again."""

    def __init__(self, target: Target, job: _Job) -> None:
        source, path = target.files[0].path, target.path
        self._is_url, self._storage = is_url(path), list(job.creating.storage)
        self._folder, self._name = _folder(path), file_name(path)
        identity = job.identities.get(source)
        source = shown(source) if is_url(source) else os.path.abspath(source)
        self._source = _hash(json.dumps([source, identity]))
        self._prefix = f".{_label(self._name)}.{_hash(self._name)}"
        self._object = f"{self._folder}{self._prefix}{_SUFFIX}"
        # A web server takes no parts. A source that does not tell its version cannot be continued.
        self._is_possible = identity is not None and not is_web(path)
        self.is_there = False
        """Whether something is left that the next call finds."""

    def _files(self) -> Iterator[tuple[str, re.Match[str]]]:
        for name in os.listdir(self._folder):
            if name.startswith(self._prefix) and (match := _LEFT.fullmatch(name)) is not None:
                yield os.path.join(self._folder, name), match

    def find(self) -> Left | None:
        """What an earlier call left of the same source. What is left of another one is removed."""
        if not self._is_possible:
            return None
        if self._is_url:
            return self._find_object()
        found: Left | None = None
        for path, match in list(self._files()):
            if match[3] == self._source:
                sum = None if match[4] is None else (int(match[4]), int(match[5], 16))
                found, self.is_there = (path, sum, False), True
            else:
                with suppress(OSError):
                    os.unlink(path)
        return found

    def _find_object(self) -> Left | None:
        try:
            content = _core.read_object(self._object, self._storage)
        except PermissionError:
            return None  # one who may only write cannot continue
        if content is None:
            return None
        self.is_there = True
        found = _parsed(content)
        if found is None or json.loads(content).get("source") != self._source:
            self.remove()
            return None
        return found

    def remember(self, writer: Writer) -> None:
        """Keeps what a writer has written, for the case that it is not published."""
        if self._is_url and self.is_there:
            return  # the object that was found says the same
        found = writer._finished() if self._is_possible else None
        if found is None:
            return
        where, sum = found
        # If it cannot be kept, the next call copies the file again.
        with suppress(OSError):
            if isinstance(where, tuple):
                upload, parts, size = where
                content = {"name": self._name, "source": self._source, "upload": upload, "parts": parts, "size": size}
                content |= {"sum": sum, "compared": writer._is_compared()}
                _core.put_object(self._object, json.dumps(content).encode(), self._storage)
            else:
                numbers = "" if sum is None else f"-{sum[0]}-{sum[1]:016x}"
                os.link(where, os.path.join(self._folder, f"{self._prefix}{self._source}{numbers}{_SUFFIX}"))
            self.is_there = True

    def forget(self) -> None:
        """Removes what tells the next call about it."""
        if self._is_url and self.is_there:
            _core.delete_objects([self._object], self._storage)
        elif not self._is_url:
            for path, _ in list(self._files()):
                with suppress(OSError):
                    os.unlink(path)
        self.is_there = False

    def remove(self) -> None:
        """Removes all of it: in a store, the upload too."""
        if not self._is_url:
            self.forget()
        elif self.is_there:
            with suppress(OSError):
                remove_left_objects([self._object], self._storage)
            self.is_there = False


def _hash(text: str) -> str:
    return _core.sha1(text.encode(errors="surrogatepass"))[:8]


def _label(name: str) -> str:
    return name if len(os.fsencode(name)) <= _LONGEST else name[:40]


def _parsed(content: bytes) -> Left | None:
    """What an object says that `_Kept.remember` wrote. None if it is not ours, or damaged."""
    try:
        found = json.loads(content)
        sum = None if found["sum"] is None else (int(found["sum"][0]), int(found["sum"][1]))
        upload = (str(found["upload"]), [str(part) for part in found["parts"]], int(found["size"]))
        return upload, sum, found.get("compared") is True
    except (ValueError, TypeError, LookupError):
        return None


def left_files(path: str, *, is_folder: bool) -> list[str]:
    """What unfinished copies left of a local file, or of all files of a folder."""
    folder = path if is_folder else os.path.dirname(path)
    try:
        names = sorted(os.listdir(folder or os.curdir))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if _is_left(name, None if is_folder else file_name(path))]


def left_objects(to: Destination, *, is_folder: bool) -> list[tuple[str, int]]:
    """What unfinished copies left of an object, or of all objects of a folder: URLs and sizes."""
    folder = _folder(to.name)
    objects, _ = _core.list_objects(folder, False, list(to.storage))
    return [(url, size) for url, size in objects if _is_left(file_name(url), None if is_folder else file_name(to.name))]


def remove_left_objects(urls: list[str], storage: list[tuple[str, str]]) -> None:
    """Lets the store forget what unfinished copies sent, and removes what they left."""
    for url in urls:
        content = _core.read_object(url, storage) or b""
        if (found := _parsed(content)) is not None:
            name = str(json.loads(content).get("name"))
            _core.abort_upload(_folder(url) + name.rpartition("/")[2], found[0][0], storage)
    _core.delete_objects(urls, storage)


def _is_left(name: str, target: str | None) -> bool:
    match = _LEFT.fullmatch(name)
    if match is None or target is None:
        return match is not None
    return (match[1], match[2]) == (_label(target), _hash(target)) or set_name(match[1]) == target


def _adopted(target: Target, keep: _Kept, job: _Job, last: Writer | None) -> Writer | None:
    """A writer that has what an earlier call left. None if that is nothing, or not what it was."""
    found = keep.find()
    if found is None:
        return None
    if job.creating.tally and found[1] is None:
        keep.remove()  # nobody has compared it, and nothing is known to compare it with
        return None
    writer = new_writer(target.path, replace(job.creating, together_with=last), {})
    try:
        writer._adopt(*found)
        writer._check(job.reading, 0)
    except Exception:
        writer._discard()
        keep.remove()
        return None
    except BaseException:
        writer._discard()
        raise
    return writer
