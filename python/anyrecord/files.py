"""Files as a whole: `info` tells about them, `verify` checks every byte."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anyrecord import _core
from anyrecord.errors import RecordError
from anyrecord.options import Limits, OpenOptions, open_options
from anyrecord.paths import expand
from anyrecord.records import Openable, open

__all__ = ["Info", "Report", "info", "verify"]


@dataclass(frozen=True, slots=True)
class Info:
    """What `info` tells. For several files, their sums; a field that is not the same for all is None."""

    format: str
    """The format, or `"mixed"`."""
    records: int
    """How many records."""
    chunks: int
    """How many chunks."""
    file_bytes: int
    """Size of the files."""
    record_bytes: int
    """Bytes of the files that hold records, as they are stored. The same as in the report of `verify`."""
    decoded_bytes: int | None
    """Size of the records, decoded; None where a file does not tell."""
    codec: str | None
    """The compression, where the files tell."""
    options: str | None
    """The options that the writer left in the file."""
    paths: tuple[str, ...]
    """The files."""

    @property
    def ratio(self) -> float | None:
        """Bytes of decoded records for each byte of file: above 1 where compression wins."""
        if self.decoded_bytes is None or self.file_bytes == 0:
            return None
        return self.decoded_bytes / self.file_bytes


def info(source: Openable, *, format: str | None = None, limits: Limits | None = None) -> Info:
    """Format, size and shape of record files, from their tables alone.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> about = anyrecord.info("doc.ffr")
    >>> about.format, about.records, about.record_bytes, about.file_bytes
    ('ffrecord', 3, 11, 59)
    """
    with open(source, format=format, limits=limits) as records:
        files = records._source.descriptions()
        paths = tuple(records.paths)
    formats, records_, chunks, file_bytes, record_bytes, decoded_bytes, codecs, options = (
        zip(*files, strict=True) if files else ((),) * 8
    )
    known = [size for size in decoded_bytes if size is not None]
    return Info(
        format=_same(formats) or "mixed",
        records=sum(records_),
        chunks=sum(chunks),
        file_bytes=sum(file_bytes),
        record_bytes=sum(record_bytes),
        decoded_bytes=sum(known) if len(known) == len(files) else None,
        codec=_same(codecs),
        options=_same(options),
        paths=paths,
    )


def _same(values: tuple[Any, ...]) -> Any:
    return values[0] if values and all(value == values[0] for value in values) else None


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` found. True if nothing is wrong.

    Every byte is in one of four sums: `record_bytes + meta_bytes + unused_bytes + damaged_bytes == file_bytes`.
    """

    format: str
    """The format, or `"mixed"`."""
    records: int
    """Records in undamaged chunks."""
    chunks: int
    """Undamaged chunks of records."""
    file_bytes: int
    """Size of the files; every byte was read."""
    record_bytes: int
    """Bytes of the files that hold undamaged records, as they are stored. `Info.record_bytes` counts the same way."""
    decoded_bytes: int
    """Size of the undamaged records, decoded."""
    meta_bytes: int
    """Bytes of headers, tables, checksums and padding."""
    unused: tuple[tuple[str, int, int], ...]
    """`(path, begin, end)` of bytes that no reader looks at, though the format allows them."""
    unused_bytes: int
    """How many bytes that are in all."""
    damaged: tuple[tuple[str, int, int], ...]
    """`(path, begin, end)` of bytes that are not as they should be, one for each of `problems`."""
    damaged_bytes: int
    """How many bytes that are in all."""
    problems: tuple[RecordError, ...]
    """What is wrong, in the order of the files; at most the first thousand of each."""
    problem_count: int
    """How many problems there are in all."""
    paths: tuple[str, ...]
    """The files."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem_count == 0

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        what = f"{len(self.paths)} files" if len(self.paths) > 1 else self.paths[0]
        head = f"{what}: {self.format}, {self.records} records, {self.file_bytes} bytes"
        if self.ok:
            return f"{head}, all accounted for"
        lines = [f"{head}, {self.problem_count} problem{'s' if self.problem_count > 1 else ''}:"]
        lines += [f"  {type(problem).__name__}: {problem}" for problem in self.problems]
        if self.problem_count > len(self.problems):
            lines.append(f"  and {self.problem_count - len(self.problems)} more")
        return "\n".join(lines)


def verify(
    source: Openable,
    *,
    format: str | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Report:
    """Reads every byte of record files, checks every hash and every structure, and reports.

    Damage is in the report, not raised; an exception means that a file could not be read, or that no format
    recognises it. `progress(done, total)` is called with bytes now and then, and at the end of each file.

    >>> import anyrecord
    >>> with anyrecord.create("doc.ffr", overwrite=True) as out:
    ...     out.write_many([b"one", b"two", b"three"])
    >>> report = anyrecord.verify("doc.ffr")
    >>> report.ok, report.records
    (True, 3)
    >>> print(report)
    doc.ffr: ffrecord, 3 records, 59 bytes, all accounted for
    """
    options = open_options(format=format, limits=limits)
    if isinstance(source, bytes | bytearray | memoryview | io.BytesIO):
        data = source.getvalue() if isinstance(source, io.BytesIO) else bytes(source)
        return _report([("<bytes>", _core.verify_bytes(data, "<bytes>", options, progress))])
    if not isinstance(source, str | os.PathLike) and hasattr(source, "read"):
        name = getattr(source, "name", repr(source))
        return _report([(str(name), _core.verify_object(source, options, progress))])
    paths = [file.path for file in expand(source)]
    return _report(_verify_paths(paths, options, progress))


def _verify_paths(
    paths: list[str], options: OpenOptions, progress: Callable[[int, int], object] | None
) -> list[tuple[str, dict[str, Any]]]:
    total, before, found = sum(os.path.getsize(path) for path in paths), 0, []
    for path in paths:
        step = None if progress is None else _Step(progress, before, total)
        report = _core.verify_path(path, options, step)
        before += report["file_bytes"]
        found.append((path, report))
    return found


class _Step:
    """Progress in one file as progress in all."""

    def __init__(self, progress: Callable[[int, int], object], before: int, total: int) -> None:
        self.progress, self.before, self.total = progress, before, total

    def __call__(self, done: int, _size: int) -> None:
        self.progress(self.before + done, self.total)


def _report(files: list[tuple[str, dict[str, Any]]]) -> Report:
    reports = [report for _, report in files]
    return Report(
        format=_same(tuple(report["format"] for report in reports)) or "mixed",
        records=sum(report["records"] for report in reports),
        chunks=sum(report["chunks"] for report in reports),
        file_bytes=sum(report["file_bytes"] for report in reports),
        record_bytes=sum(report["record_bytes"] for report in reports),
        decoded_bytes=sum(report["decoded_bytes"] for report in reports),
        meta_bytes=sum(report["meta_bytes"] for report in reports),
        unused=tuple((path, begin, end) for path, report in files for begin, end in report["unused"]),
        unused_bytes=sum(report["unused_bytes"] for report in reports),
        damaged=tuple((path, begin, end) for path, report in files for begin, end in report["damaged"]),
        damaged_bytes=sum(report["damaged_bytes"] for report in reports),
        problems=tuple(problem for report in reports for problem in report["problems"]),
        problem_count=sum(report["problem_count"] for report in reports),
        paths=tuple(path for path, _ in files),
    )
