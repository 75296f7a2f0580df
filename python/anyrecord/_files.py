"""Whole files: `info` describes them, `verify` checks every byte.

Both divide the bytes of a file in the same way. For an undamaged file, both report the same `record_bytes`:

| format | `record_bytes` | `meta_bytes` |
|---|---|---|
| ffrecord | the samples | the header and the table |
| tfrecord | the data of the records | 16 bytes around each record |
| tfrecord, gzip or zlib | the stream | 18 or 6 bytes around it |
| recordio | the payloads as they are stored | the header of each chunk, 20 bytes |
| array_record, riegeli | the chunks, each up to the next one | 40 bytes in each; signature, footer, postscript |
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from typing import Any

from anyrecord import _core
from anyrecord._calls import Progress
from anyrecord._dataclasses import dataclass
from anyrecord._locations import same_file, shown
from anyrecord._options import Limits, OpenOptions, open_options
from anyrecord._paths import FileRange, expand, size_of, with_sizes
from anyrecord._publishing import Unchanged
from anyrecord._records import Openable, open
from anyrecord._stores import Storage
from anyrecord.errors import RecordError

__all__ = ["FileInfo", "Info", "Report", "info", "verify", "verify_files"]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What `info` returns for one file. For a range (`file[a:b]`), it counts the records and chunks of the range."""

    path: str
    """The file."""
    format: str
    """The format."""
    records: int
    """How many records."""
    chunks: int
    """How many chunks hold them."""
    file_bytes: int
    """Size of the whole file."""
    record_bytes: int
    """Bytes of the whole file that hold records, as they are stored."""
    decoded_bytes: int | None
    """Size of all records of the file, decoded. None if the file does not store it."""
    codec: str | None
    """The compression. None if the file does not store it."""
    options: str | None
    """The options that the writer left in the file."""

    @property
    def ratio(self) -> float | None:
        """Bytes of decoded records for each byte of the file. Above 1 means that compression saves space."""
        return _ratio(self.decoded_bytes, self.file_bytes)

    def _repr_html_(self) -> str:
        from anyrecord._notebook import file_info_html

        return file_info_html(self)


@dataclass(frozen=True, slots=True)
class Info:
    """What `info` returns. For several files, counts and sizes are sums, and a text that differs between files is None.

    For ranges (`file[a:b]`), `records` and `chunks` count what is in the ranges. Sizes are always those of whole files.
    A file that is named twice counts once.
    """

    format: str
    """The format, or `"mixed"` if the files have different formats."""
    records: int
    """How many records."""
    chunks: int
    """How many chunks hold them."""
    file_bytes: int
    """Size of the files."""
    record_bytes: int
    """Bytes of the files that hold records, as they are stored. The same as in the report of `verify`."""
    decoded_bytes: int | None
    """Size of the records of the files, decoded. None if a file does not store it."""
    codec: str | None
    """The compression. None if the files do not store it, or differ."""
    options: str | None
    """The options that the writer left in the file."""
    paths: tuple[str, ...]
    """The files."""
    files: tuple[FileInfo, ...]
    """The same facts for each file or range, in order."""

    @property
    def ratio(self) -> float | None:
        """Bytes of decoded records for each byte of the files. Above 1 means that compression saves space."""
        return _ratio(self.decoded_bytes, self.file_bytes)

    def _repr_html_(self) -> str:
        from anyrecord._notebook import info_html

        return info_html(self)


def _ratio(decoded_bytes: int | None, file_bytes: int) -> float | None:
    return None if decoded_bytes is None or file_bytes == 0 else decoded_bytes / file_bytes


def info(
    source: Openable, *, format: str | None = None, limits: Limits | None = None, storage: Storage | None = None
) -> Info:
    """Returns the format, sizes and counts of record files. It reads only their tables.

    `source` is anything that `open` takes, and `storage` is that of `open`.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> about = anyrecord.info("doc.ffr")
    >>> about.format, about.records, about.record_bytes, about.file_bytes
    ('ffrecord', 3, 11, 59)
    >>> [(file.path, file.records) for file in anyrecord.info(["doc.ffr", "doc.ffr[0:2]"]).files]
    [('doc.ffr', 3), ('doc.ffr', 2)]
    """
    with open(source, format=format, limits=limits, storage=storage) as records:
        named = records._source.files()
        abouts = records._source.descriptions()
    files = [FileInfo(name, *about) for (name, *_), about in zip(named, abouts, strict=True)]
    # Count a file that is named twice only once. Only paths can be named twice.
    names = [same_file(file[-1]) if file[-1] else number for number, file in enumerate(named)]
    whole = dict(zip(names, files, strict=True)).values()
    decoded = [file.decoded_bytes for file in whole if file.decoded_bytes is not None]
    return Info(
        format=_same(file.format for file in files) or "mixed",
        records=sum(file.records for file in files),
        chunks=sum(file.chunks for file in files),
        file_bytes=sum(file.file_bytes for file in whole),
        record_bytes=sum(file.record_bytes for file in whole),
        decoded_bytes=sum(decoded) if len(decoded) == len(whole) else None,
        codec=_same(file.codec for file in files),
        options=_same(file.options for file in files),
        paths=tuple(file.path for file in files),
        files=tuple(files),
    )


def _same(values: Iterable[str | None]) -> str | None:
    different = set(values)
    return different.pop() if len(different) == 1 else None


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` found. A report is true if nothing is wrong.

    Every byte is in one of four sums: `record_bytes + meta_bytes + unused_bytes + damaged_bytes == file_bytes`.

    For ranges (`file[a:b]`), `records` and `chunks` count what is in the ranges. All other fields are about whole
    files: each file is read once, and all of its damage is reported.
    """

    format: str
    """The format, or `"mixed"` if the files have different formats."""
    records: int
    """How many records the undamaged chunks hold."""
    chunks: int
    """How many chunks are undamaged."""
    file_bytes: int
    """Size of the files; every byte was read."""
    record_bytes: int
    """Bytes of the files that hold undamaged records, as they are stored.

    If nothing is damaged, this is the same number as `Info.record_bytes`.
    """
    decoded_bytes: int
    """Size of the undamaged records of the files, decoded."""
    meta_bytes: int
    """Bytes of headers, tables, checksums and padding."""
    unused: tuple[tuple[str, int, int], ...]
    """`(path, begin, end)` of bytes that the format allows and no reader uses. At most a thousand for each file."""
    unused_bytes: int
    """The total number of unused bytes."""
    damaged: tuple[tuple[str, int, int], ...]
    """`(path, begin, end)` of damaged bytes, one entry for each of `problems`."""
    damaged_bytes: int
    """The total number of damaged bytes."""
    problems: tuple[RecordError, ...]
    """What is wrong, in the order of the files. At most a thousand for each file.

    The `record` of each problem is the number, in its file, of the first record at or after the damage. Damage to a
    table before all records has no record number. If damage hides how many records there were, numbering continues
    after the damage without a gap.
    """
    problem_count: int
    """The total number of problems."""
    paths: tuple[str, ...]
    """The files."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem_count == 0

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        count = len(set(self.paths))
        what = f"{count} files" if count > 1 else self.paths[0]
        head = f"{what}: {self.format}, {self.records} records, {self.file_bytes} bytes"
        if self.ok:
            return f"{head}, all accounted for"
        lines = [f"{head}, {self.problem_count} problem{'s' if self.problem_count > 1 else ''}:"]
        lines += [f"  {type(problem).__name__}: {problem}" for problem in self.problems]
        if self.problem_count > len(self.problems):
            lines.append(f"  and {self.problem_count - len(self.problems)} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from anyrecord._notebook import report_html

        return report_html(self)


def verify(
    source: Openable,
    *,
    format: str | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int], object] | None = None,
    storage: Storage | None = None,
) -> Report:
    """Reads every byte of record files, checks every hash and every structure, and returns a report.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> report = anyrecord.verify("doc.ffr")
    >>> report.ok, report.records, report.record_bytes, report.meta_bytes
    (True, 3, 11, 48)
    >>> print(report)
    doc.ffr: ffrecord, 3 records, 59 bytes, all accounted for

    `source` is anything that `open` takes, and `storage` is that of `open`. Damage does not raise an exception; it is
    in the report. An exception means that a file could not be read, or that its format is not known.
    `progress(done, total)` is called with bytes, from time to time and at the end of each file.
    """
    options = open_options(format=format, limits=limits, storage=storage)
    step = None if progress is None else Progress(progress)
    if isinstance(source, io.BytesIO):
        return _report([_core.verify_bytes(source.getvalue(), "<BytesIO>", options, step)])
    if isinstance(source, bytes | bytearray | memoryview):
        return _report([_core.verify_bytes(bytes(source), "<bytes>", options, step)])
    if not isinstance(source, str | os.PathLike) and hasattr(source, "read"):
        return _report([_core.verify_object(source, options, step)])
    return verify_files(expand(source, options), options, progress)


def verify_files(files: list[FileRange], options: OpenOptions, progress: Callable[[int, int], object] | None) -> Report:
    """Does what `verify` does, with the files that `expand` returned."""
    return _report(_verify_paths(files, options, progress), tuple(shown(file.path) for file in files))


def _verify_paths(
    files: list[FileRange], options: OpenOptions, progress: Callable[[int, int], object] | None
) -> list[dict[str, Any]]:
    parts: dict[str, list[FileRange]] = {}
    for file in files:
        parts.setdefault(os.path.abspath(file.path) if file.is_local else file.path, []).append(file)
    with Unchanged(files):
        total = 0
        if progress is not None:
            sized = with_sizes([ranges[0] for ranges in parts.values()], options)
            total = sum(size_of(file) for file in sized)
        step = None if progress is None else Progress(progress, total)
        named = [(ranges[0].path, [(part.start, part.stop) for part in ranges]) for ranges in parts.values()]
        return _core.verify_paths(named, options, step)


def _report(files: list[dict[str, Any]], paths: tuple[str, ...] | None = None) -> Report:
    def total(field: str) -> int:
        return sum(file[field] for file in files)

    def byte_ranges(field: str) -> tuple[tuple[str, int, int], ...]:
        return tuple((file["name"], begin, end) for file in files for begin, end in file[field])

    return Report(
        format=_same(file["format"] for file in files) or "mixed",
        records=sum(sum(file["records"]) for file in files),
        chunks=sum(sum(file["chunks"]) for file in files),
        file_bytes=total("file_bytes"),
        record_bytes=total("record_bytes"),
        decoded_bytes=total("decoded_bytes"),
        meta_bytes=total("meta_bytes"),
        unused=byte_ranges("unused"),
        unused_bytes=total("unused_bytes"),
        damaged=byte_ranges("damaged"),
        damaged_bytes=total("damaged_bytes"),
        problems=tuple(problem for file in files for problem in file["problems"]),
        problem_count=total("problem_count"),
        paths=paths or tuple(file["name"] for file in files),
    )
