"""`salvage`: saves what can still be read from damaged, truncated and unfinished files."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, BinaryIO, SupportsIndex, Unpack

from anyrecord import _core
from anyrecord._calls import Progress
from anyrecord._copying import Target, check_published, cores, is_folder_target, plan, publish
from anyrecord._dataclasses import dataclass, replace
from anyrecord._locations import StrPath, shown
from anyrecord._mapped import MappedRecords
from anyrecord._options import Limits, OpenOptions, open_options
from anyrecord._paths import FileRange, expand, size_of, with_sizes
from anyrecord._publishing import Unchanged
from anyrecord._records import Openable, Records
from anyrecord._stores import Storage
from anyrecord._targets import Destination, destination
from anyrecord._writer import (
    Creating,
    FormatOptions,
    Writer,
    format_of,
    new_writer,
    refuse_unknown_options,
    sharding_of,
    threads_option,
)
from anyrecord.errors import RecordError

__all__ = ["Salvaged", "salvage"]


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What `salvage` saved. It is true if nothing was lost.

    Of files without damage, all records are saved. Damage that costs no record is not reported here: use `verify` to
    see all damage.
    """

    format: str
    """The format of the files that were read, or `"mixed"`."""
    records: int
    """How many records were saved."""
    found_by_search: int
    """How many of them were found by a search after damage. Such a record may in fact be part of another record."""
    found: tuple[tuple[int, int], ...]
    """`(first, end)` of the records that were found by search, as they are numbered in the file or the shards that
    they were saved to. At most a thousand for each source file."""
    skipped: tuple[tuple[str, int, int], ...]
    """`(path, begin, end)` of the bytes that were skipped. At most a thousand for each source file."""
    problems: tuple[RecordError, ...]
    """Why, one for each of `skipped`. The `record` of each is the number, in its file, of the first lost record. It is
    None if the damage is not in a record. Where damage hides how many records there were, it counts without them."""
    skipped_count: int
    """How many ranges were skipped in all."""
    lost_bytes: int
    """How many bytes were skipped in all."""
    unreadable_bytes: int
    """How many bytes the disk could not read. They are read as zeros."""
    source_bytes: int
    """Size of the files that were read."""
    sources: tuple[str, ...]
    """The files that were read."""
    paths: tuple[str, ...]
    """The files that were written."""

    @property
    def ok(self) -> bool:
        """Whether nothing was lost."""
        return self.skipped_count == 0

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        what = f"{len(self.sources)} files" if len(self.sources) > 1 else self.sources[0]
        head = f"{what}: {self.format}, {self.records} records saved"
        if self.found_by_search:
            head += f", {self.found_by_search} of them found by search"
        if self.ok:
            return f"{head}, nothing lost"
        times = "once" if self.skipped_count == 1 else f"{self.skipped_count} times"
        lines = [f"{head}, {self.lost_bytes} of {self.source_bytes} bytes skipped ({times}):"]
        lines += [
            f"  bytes {begin} to {end}: {type(problem).__name__}: {problem}"
            for (_, begin, end), problem in zip(self.skipped, self.problems, strict=True)
        ]
        if self.skipped_count > len(self.problems):
            lines.append(f"  and {self.skipped_count - len(self.problems)} more")
        return "\n".join(lines)


def salvage(
    source: Openable,
    target: StrPath | BinaryIO | None = None,
    *,
    format: str | None = None,
    strict: bool = False,
    overwrite: bool = False,
    durable: bool = True,
    shards: SupportsIndex | None = None,
    shard_bytes: SupportsIndex | None = None,
    shard_records: SupportsIndex | None = None,
    threads: SupportsIndex | None = None,
    progress: Callable[[int, int], object] | None = None,
    source_format: str | None = None,
    limits: Limits | None = None,
    storage: Storage | None = None,
    target_storage: Storage | None = None,
    **options: Unpack[FormatOptions],
) -> Salvaged:
    """Saves every record that can still be read from damaged, truncated or unfinished files, in order.

    >>> import anyrecord, pathlib
    >>> with anyrecord.create("bad.tfrecord", overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> damaged = bytearray(pathlib.Path("bad.tfrecord").read_bytes())
    >>> damaged[32] ^= 1                                # in the record b"two"
    >>> _ = pathlib.Path("bad.tfrecord").write_bytes(damaged)
    >>> done = anyrecord.salvage("bad.tfrecord", "saved.ffr", overwrite=True)
    >>> bool(done), done.records, done.skipped
    (False, 2, (('bad.tfrecord', 19, 38),))
    >>> list(anyrecord.open("saved.ffr"))
    [b'one', b'three']

    `source` is anything that `open` takes, but whole files: no ranges such as `file[0:10]`. It is never changed.
    Without a `target`, nothing is written: the report says what could be saved.

    `target` is anything that `create` and `convert` take: a file of any format, shards, a file object, or a folder,
    which gets one file for each source file. Its suffix chooses its format, unless you pass `format`. Options
    of that format, `overwrite`, `durable`, `shards`, `shard_bytes` and `shard_records` are those of `convert`. The new
    files appear only when they are complete, and their records are compared with what was saved.

    - `source_format`: the format of the source. By default the bytes decide, else the suffix, else a search for
      records. For a temporary file of a writer, the suffix is that of the file it was to become.
    - `strict=True` leaves out records that were found by search. After damage, the next record is found from the table
      of the file if there is one. Where there is none, it is searched for. A record that itself contains a record file
      can then be taken for records. `found` says which records these are.
    - `threads`: how many threads decode, and how many encode. By default all cores are used.
    - `progress(done, total)` is called from time to time. It counts bytes of the sources.
    - `limits`: the limits of `open`. What is over a limit is skipped.
    - `storage`: the `storage` of `open`, if the source is a URL.
    - `target_storage`: the `storage` of `create`, if the target is a URL. Its records are compared after it is
      published.

    One damaged byte costs at most one chunk. For FFRecord and TFRecord it costs at most one record, but from a TFRecord
    file that is compressed as a whole, only what comes before the damage can be read. Memory use does not grow with the
    files, except for the table of a file.

    Every saved record is proved by a checksum. Blocks that the disk cannot read count as damaged.
    """
    refuse_unknown_options("salvage", options)
    to = destination(target, target_storage) if isinstance(target, str | os.PathLike) else Destination("")
    name = to.name if isinstance(target, str | os.PathLike) else None
    if progress is not None and not callable(progress):
        raise TypeError(f"progress needs a function, not {type(progress).__name__}")
    if isinstance(source, Records | MappedRecords):
        raise TypeError("salvage reads files, and these records are already open; pass their paths: records.paths")
    reading = open_options(format=source_format, limits=limits, storage=storage)
    files = None if _is_storage(source) else _whole(expand(source, reading))  # type: ignore[arg-type]  # paths
    if files is not None:
        files = with_sizes(files, reading)
    saving = Saving(
        writer=None,
        reading=reading,
        strict=bool(strict),
        threads=cores() if threads is None else threads_option(threads) or 1,
        split=None,
        progress=None,
        total=0,
    )
    if target is None:
        given = {"format": format, "shards": shards, "shard_bytes": shard_bytes, **options}
        given["shard_records"] = shard_records
        if named := [keyword for keyword, value in given.items() if value is not None]:
            raise ValueError(f"{named[0]}= is for a target; pass one")
        return _report(_Run(source, files, saving, progress).save(), ())
    given = {keyword: value for keyword, value in options.items() if value is not None}
    sharding = sharding_of(shards, shard_bytes, shard_records)
    if name is None and sharding[0] != "one":
        raise ValueError("shards cannot be written to a file object; pass a path")
    into_folder = name is not None and is_folder_target(name, format, sharding)
    if into_folder and files is None:
        raise ValueError(f"{name} is a folder, which gets one file for each source file; pass a file name")
    creating = Creating(
        format=format or format_of(name),
        overwrite=bool(overwrite),
        durable=bool(durable),
        threads=cores() if threads is None else threads_option(threads),
        sharding=sharding,
        num_records=None,
        tally=True,
        storage=to.storage,
        in_set=into_folder,
    )
    run = _Run(source, files, saving, progress)
    if name is None:
        return run.into([Target("", files or [])], creating, given, target)
    targets = plan(files or [], name, creating, given, into_folder=into_folder, keep_sources=True)
    return run.into(targets, creating, given)


def _is_storage(source: object) -> bool:
    """Whether the source is bytes or a file object, and not paths."""
    if isinstance(source, bytes | bytearray | memoryview):
        return True
    return not isinstance(source, str | os.PathLike) and hasattr(source, "read")


def _whole(files: list[FileRange]) -> list[FileRange]:
    for file in files:
        if (file.start, file.stop) != (0, None):
            raise ValueError(
                f"salvage reads whole files, not a range of {shown(file.path)}: damage can change record numbers"
            )
    return files


@dataclass(frozen=True, slots=True)
class Saving:
    """How records are saved. The core reads the attributes by name."""

    writer: Writer | None
    reading: OpenOptions
    strict: bool
    threads: int
    split: tuple[int, int] | None
    """`(shards, records)`, for shards with equal numbers of records."""
    progress: Callable[[int, int], object] | None
    total: int
    """The total that is passed to `progress`. Not used for bytes and file objects."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One call."""

    source: Any
    files: list[FileRange] | None
    """None: the source is bytes or a file object."""
    saving: Saving
    progress: Callable[[int, int], object] | None
    total: int | None = None
    """What is passed to `progress` as the total, if these files are only a part of the sources."""

    def into(
        self, targets: list[Target], creating: Creating, options: dict[str, object], output: object = None
    ) -> Salvaged:
        """Saves to files that appear together, or to a file object."""
        written: list[Writer] = []
        reports: list[dict[str, Any]] = []
        before, total = 0, None if self.files is None else _size(self.files)
        try:
            with Unchanged(self.files or []):
                for target in targets:
                    part = replace(self, files=None if self.files is None else target.files, total=total)
                    # Writers whose files are published together share one lock on their temporary files.
                    together = replace(creating, together_with=written[-1] if written else None)
                    writer = part._write(output or target.path, together, options, before, reports)
                    written.append(writer)
                    before += _size(target.files)
            publish(written, creating.overwrite)
            check_published(written, self.saving.reading, creating.threads or 0)
        finally:
            for writer in written:
                writer._discard()  # does nothing if the writer has published
        return _report(reports, tuple(path for writer in written for path in writer.paths))

    def _write(
        self, target: Any, creating: Creating, options: dict[str, object], before: int, reports: list[dict[str, Any]]
    ) -> Writer:
        """A writer with all saved records: complete, verified, and not published yet."""
        split = None
        if creating.sharding[0] == "turns":
            # Equal shards need the number of records, which only a first pass can tell.
            split = (creating.sharding[1], sum(report["records"] for report in replace(self, progress=None).save()))
            creating = replace(creating, sharding=("explicit", split[0]))
        writer = new_writer(target, creating, options)
        writer._advice = "wait for salvage to return before the program ends"
        with ExitStack() as on_error:
            on_error.callback(writer._discard)
            saving = replace(self.saving, writer=writer, split=split)
            reports += replace(self, saving=saving).save(before)
            writer._seal()
            writer._check(self.saving.reading, creating.threads or 0)
            on_error.pop_all()
        return writer

    def save(self, before: int = 0) -> list[dict[str, Any]]:
        """Reads the sources and returns a report for each. `before`: bytes of the sources that were read before."""
        if self.files is None:
            return self._save_storage()
        paths = [file.path for file in self.files]
        total = _size(self.files)
        whole = Progress(self.progress, total if self.total is None else self.total, before)
        step = None if self.progress is None else whole
        reports = _core.salvage_paths(paths, replace(self.saving, progress=step, total=total))
        whole(total)
        return reports

    def _save_storage(self) -> list[dict[str, Any]]:
        step = Progress(self.progress)
        saving = replace(self.saving, progress=None if self.progress is None else step)
        if isinstance(self.source, io.BytesIO):
            report = _core.salvage_bytes(self.source.getvalue(), "<BytesIO>", saving)
        elif isinstance(self.source, bytes | bytearray | memoryview):
            report = _core.salvage_bytes(bytes(self.source), "<bytes>", saving)
        else:
            report = _core.salvage_object(self.source, saving)
        step(report["file_bytes"], report["file_bytes"])
        return [report]


def _size(files: list[FileRange]) -> int:
    return sum(size_of(file) for file in files)


def _report(files: list[dict[str, Any]], paths: tuple[str, ...]) -> Salvaged:
    def total(field: str) -> int:
        return sum(file[field] for file in files)

    def same(values: Iterable[str]) -> str:
        different = set(values)
        return different.pop() if len(different) == 1 else "mixed"

    return Salvaged(
        format=same(file["format"] for file in files),
        records=total("records"),
        found_by_search=total("found_by_search"),
        found=tuple(found for file in files for found in file["found"]),
        skipped=tuple((file["name"], begin, end) for file in files for begin, end in file["skipped"]),
        problems=tuple(problem for file in files for problem in file["problems"]),
        skipped_count=total("skipped_count"),
        lost_bytes=total("lost_bytes"),
        unreadable_bytes=total("unreadable_bytes"),
        source_bytes=total("file_bytes"),
        sources=tuple(file["name"] for file in files),
        paths=paths,
    )
