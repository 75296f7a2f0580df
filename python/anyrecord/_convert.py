"""`convert`: from record files of any format to files of any other, as one file, as shards, or one to one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, SupportsIndex, Unpack

from anyrecord import _core, _pouring
from anyrecord._calls import Progress
from anyrecord._copying import Target, check_published, cores, is_folder_target, plan, publish
from anyrecord._dataclasses import dataclass, replace
from anyrecord._locations import StrPath, is_url
from anyrecord._mapped import MappedRecords
from anyrecord._options import Limits, OnError, OpenOptions, open_options
from anyrecord._paths import FileRange, expand, size_of, with_sizes
from anyrecord._places import Skipped
from anyrecord._pouring import View
from anyrecord._publishing import Unchanged
from anyrecord._records import Records
from anyrecord._stores import Pairs, Storage
from anyrecord._targets import Destination, destination
from anyrecord._temporaries import Leftovers
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

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in the standard library from Python 3.12 on

__all__ = ["Converted", "convert"]


@dataclass(frozen=True, slots=True)
class Converted:
    """What `convert` did."""

    format: str
    """The format of the new files."""
    records: int
    """How many records were written."""
    source_bytes: int
    """Size of the files that were read."""
    file_bytes: int
    """Size of the files that were written. 0 for a file object."""
    paths: tuple[str, ...]
    """The files that were written. Empty for a file object."""
    skipped: tuple[Skipped, ...] = ()
    """The damaged records that were left out or replaced, as in `Records.skipped`."""


def convert(
    sources: StrPath | Iterable[StrPath] | View,
    target: StrPath | BinaryIO,
    *,
    format: str | None = None,
    overwrite: bool = False,
    durable: bool = True,
    shards: SupportsIndex | None = None,
    shard_bytes: SupportsIndex | None = None,
    shard_records: SupportsIndex | None = None,
    threads: SupportsIndex | None = None,
    map: Callable[[bytes], Buffer | None] | None = None,
    verify: bool = True,
    progress: Callable[[int, int], object] | None = None,
    source_format: str | None = None,
    limits: Limits | None = None,
    on_error: OnError = "raise",
    max_errors: SupportsIndex | None = None,
    storage: Storage | None = None,
    target_storage: Storage | None = None,
    **options: Unpack[FormatOptions],
) -> Converted:
    """Writes the records of `sources` to `target`, in their order.

    >>> import anyrecord
    >>> with anyrecord.create("old.tfrecord", overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> done = anyrecord.convert("old.tfrecord", "new.array_record", codec="brotli", group_size=2)
    >>> done.records, done.paths
    (3, ('new.array_record',))
    >>> list(anyrecord.open("new.array_record"))
    [b'one', b'two', b'three']

    `sources` takes the same paths as `open`: a file, a list, a glob, a folder, `name@16`, `file[0:1000]`. It can also
    be open `Records` or any view of them: a slice, a shuffle, a mixture, mapped records. For mapped records, the
    results of the function are written, and a result of None is left out.

    `target` is one of these:

    - a file name: all records go to that file. The suffix chooses the format, unless you pass `format`.
    - a file name and `shards=16`: 16 shards with equal numbers of records. The first shard holds the first sixteenth
      of the records, and so on. Reading the shards in order gives the order of the sources. The records are counted
      first: from the table if the format has one, else from the headers. `shard_bytes` and `shard_records` fill one
      shard after the other.
    - an existing folder, or a name that ends in a slash: each source becomes one file in that folder. The file keeps
      its name and its shard number, and gets the suffix of `format`. You must pass `format`.
    - a file object with `write`, such as `sys.stdout.buffer`: all records go there at once. You must pass `format`. It
      is not read again, and after an exception a part of the records is there.

    Pass options of the new format as keywords, as for `create`. `overwrite` and `durable` mean the same as there, and
    so does `threads`, but the default here is to encode on all cores. With `overwrite=True`, a source can be its own
    target if each file is converted to one file.

    - `map`: a function that takes each record (`bytes`) and returns what to write instead, or None to leave the record
      out. `shards` are balanced before records are left out.
    - `verify=False`: do not read the new files again. By default, their records are compared with what was written
      before the files are published.
    - `progress(done, total)` is called from time to time. It counts bytes of the source files; for open records it
      counts records.
    - `source_format`, `limits`, `storage`: the `format`, `limits` and `storage` of `open`, for sources given by path.
    - `target_storage`: the `storage` of `create`, if the target is a URL. A URL that ends in a slash is a folder. An
      object cannot be read before it is published, so its records are compared after that. If they differ, what was
      published is deleted again.
    - `on_error`, `max_errors`: what happens to damaged records, as for `open`, for sources given by path. Records are
      then read one by one, and no chunk is copied as it is. `shards` are balanced before records are left out.

    Records are streamed, so memory use does not grow with the files: it is a few chunks for each thread, and a few
    bytes for each chunk of an ArrayRecord target. If source and target have the same format and pack chunks in the
    same way, chunks are copied without decoding after their checksums are checked.

    Files get their final names only when all of them are complete. All files appear together or not at all. After an
    exception, Ctrl-C or a kill you can make the same call again. Only if the process was killed at the very end, while
    files got their names, call `recover` first.
    """
    refuse_unknown_options("convert", options)
    output = target if hasattr(target, "write") else None
    to = Destination("") if output is not None else destination(target, target_storage)  # type: ignore[arg-type]
    name = to.name
    view = sources if isinstance(sources, Records | MappedRecords) else None
    given = (source_format, limits, None if on_error == "raise" else on_error, max_errors, storage)
    if view is not None and any(value is not None for value in given):
        raise ValueError(
            "source_format=, limits=, on_error=, max_errors= and storage= are for paths; "
            "these records are already open: pass them to open()"
        )
    reading = (
        open_options(format=source_format, limits=limits, on_error=on_error, max_errors=max_errors, storage=storage)
        if view is None
        else _pouring.options_of(view)
    )
    files = expand(sources, reading) if view is None else _pouring.files_of(view)  # type: ignore[arg-type]  # no view
    unchanged = Unchanged(files if view is None else [])
    for what, function in (("map", map), ("progress", progress)):
        if function is not None and not callable(function):
            raise TypeError(f"{what} needs a function, not {type(function).__name__}")
    sharding = sharding_of(shards, shard_bytes, shard_records)
    if output is not None and sharding[0] != "one":
        raise ValueError("shards cannot be written to a file object; pass a path")
    into_folder = output is None and is_folder_target(name, format, sharding)
    if into_folder and view is not None:
        raise ValueError(
            f"{name} is a folder, which gets one file for each source file; pass a file name to convert open records"
        )
    job = _Job(
        view=view,
        reading=reading,
        creating=Creating(
            format=format or format_of(None if output is not None else name),
            overwrite=bool(overwrite),
            durable=bool(durable),
            threads=cores() if threads is None else threads_option(threads),
            sharding=sharding,
            num_records=None,
            tally=bool(verify) and output is None,
            storage=to.storage,
            in_set=into_folder,
        ),
        output=output,
        options={keyword: value for keyword, value in options.items() if value is not None},
        map=map,
        progress=progress,
        total=0 if view is None else len(view),
    )
    files = with_sizes(files, reading)
    if output is not None:
        return _convert([Target("", files)], job, unchanged)
    targets = plan(files, name, job.creating, job.options, into_folder=into_folder)
    if to.is_url:
        return _convert(targets, job, unchanged)
    leftovers = Leftovers([target.path for target in targets], [file.path for file in files if file.is_local])
    converted = _convert(targets, job, unchanged)
    leftovers.remove()
    return converted


@dataclass(frozen=True, slots=True)
class _Job:
    """The options of one call, the same for all its files."""

    view: View | None
    """Open records that are the source, instead of files."""
    reading: OpenOptions
    creating: Creating
    output: Any
    """The file object to write to. None: each target has a path."""
    options: dict[str, object]
    map: Callable[[bytes], Buffer | None] | None
    progress: Callable[[int, int], object] | None
    total: int


def _convert(targets: list[Target], job: _Job, unchanged: Unchanged) -> Converted:
    written: list[Writer] = []
    before, report = 0, Progress(job.progress, job.total)
    opened: Records | None = None
    try:
        with unchanged:
            if job.view is None:
                job = replace(job, total=sum(size_of(file) for target in targets for file in target.files))
            report = Progress(job.progress, job.total)
            if job.view is None and job.reading.reads_on:
                # One source for all files: their damage counts together, and neighbours are those of `open`.
                inputs = [_input(file) for target in targets for file in target.files]
                opened = Records(_core.open_paths(inputs, job.reading))
            for target, part in zip(targets, _parts(targets, opened, job.view), strict=True):
                written.append(_write(target, job, before, part, written[-1] if written else None))
                before += sum(size_of(file) for file in target.files) if job.view is None else job.total
                if before < job.total:
                    report(before)
            report(job.total)
        skipped = tuple(opened.skipped if opened is not None else job.view.skipped if job.view is not None else ())
        if opened is not None:
            opened.close()
        publish(written, job.creating.overwrite)
        if job.creating.tally:
            check_published(written, job.reading, job.creating.threads or 0)
    finally:
        if opened is not None:
            opened.close()
        for writer in written:
            writer._discard()  # does nothing if the writer has published
    paths = [path for writer in written for path in writer.paths]
    names = [name for writer in written for name in writer._names or []]
    return Converted(
        format=job.creating.format,
        records=sum(writer.num_records for writer in written),
        source_bytes=job.total if job.view is None else _pouring.source_bytes(job.view),
        file_bytes=_sizes(names, job.creating.storage),
        paths=tuple(paths),
        skipped=skipped,
    )


def _sizes(names: list[str], storage: Pairs) -> int:
    if names and is_url(names[0]):
        return sum(_core.object_sizes(names, list(storage)))
    return sum(os.path.getsize(name) for name in names)


def _input(file: FileRange) -> tuple[str, int, int | None]:
    return file.path, file.start, file.stop


def _parts(targets: list[Target], opened: Records | None, view: View | None) -> Iterator[View | None]:
    """The open records that each target gets. None: the files are read without opening them as records."""
    if opened is None:
        yield from (view for _ in targets)
        return
    counts, begin = iter(file[2] for file in opened._source.files()), 0
    for target in targets:
        end = begin + sum(next(counts) for _ in target.files)
        yield opened[begin:end]
        begin = end


def _write(target: Target, job: _Job, before: int, view: View | None, last: Writer | None) -> Writer:
    """A writer with all records of the files or of the view: complete, verified if asked for, and not published yet.

    `last`: the writer of the target before this one. Both are published together.
    """
    inputs = [_input(file) for file in target.files]
    creating, split = replace(job.creating, together_with=last), None
    if creating.sharding[0] == "turns":
        shards = creating.sharding[1]
        split = (shards, _count(inputs, job, view))
        creating = replace(creating, sharding=("explicit", shards))
    elif (
        creating.format == "ffrecord"
        and creating.sharding[0] == "one"
        and _keeps_all(job)
        and (view is not None or _is_counted_cheaply(target.files, job))
    ):
        # FFRecord stores its table before the records. If the count is known, the file is written in one pass.
        creating = replace(creating, num_records=_count(inputs, job, view))
    progress = job.progress
    step = None if progress is None else Progress(progress, job.total, before)
    writer = new_writer(target.path if job.output is None else job.output, creating, job.options)
    writer._advice = "wait for convert to return before the program ends"
    try:
        total = sum(size_of(file) for file in target.files) if job.view is None else job.total
        if view is None:
            _core.pour(writer, inputs, job.reading, split, job.map, step, total)
        else:
            _pouring.pour(view, writer, None if split is None else split[0], job.map, step, total)
        writer._seal()
        if creating.tally:
            writer._check(job.reading, creating.threads or 0)
    except BaseException:
        writer._discard()
        raise
    return writer


def _count(inputs: list[tuple[str, int, int | None]], job: _Job, view: View | None) -> int:
    return _core.count_records(inputs, job.reading) if view is None else len(view)


def _is_counted_cheaply(files: list[FileRange], job: _Job) -> bool:
    """Whether counting records costs less than a second copy of them on the local disk.

    An object of a format without a table would have to be read twice.
    """

    def has_table(file: FileRange) -> bool:
        return (job.reading.format or _core.format_of_suffix(file.path)) in ("array_record", "ffrecord")

    return all(file.is_local or has_table(file) for file in files)


def _keeps_all(job: _Job) -> bool:
    """Whether every record of the source is written, because nothing can leave one out."""
    return job.map is None and not isinstance(job.view, MappedRecords) and job.reading.on_error != "skip"
