"""How records, `info` and reports look in a notebook: a small table, with a preview of the first records.

A notebook shows a value whenever a cell ends with it, so this is quick and never raises. It reads little:

| | records shown | bytes of stored records read, at most | waits at most |
|---|---|---|---|
| local files, file objects, bytes | 5 | 64 MiB | |
| remote files | 3 | 1 MiB | 2 seconds; the reading goes on in a thread that nobody waits for |

A larger record is named, not read. Everything that comes from a file is escaped. A picture is shown if it is small and
its header is valid.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from anyrecord._dataclasses import dataclass
from anyrecord._preview import clip, one_line, preview

if TYPE_CHECKING:
    from anyrecord._files import FileInfo, Info, Report
    from anyrecord._records import Records

__all__ = ["file_info_html", "info_html", "records_html", "report_html"]

_LOCAL_RECORDS: Final = 5
_LOCAL_BYTES: Final = 64 << 20
_REMOTE_RECORDS: Final = 3
_REMOTE_BYTES: Final = 1 << 20
_REMOTE_SECONDS: Final = 2.0
_PICTURE_BYTES: Final = 128 << 10
_PICTURES_BYTES: Final = 256 << 10
_PICTURE_PIXELS: Final = 16 << 20
_PICTURES: Final = ("png", "jpeg", "webp", "gif")
_SHOWN_FILES: Final = 10
_SHOWN_PROBLEMS: Final = 10
_COLUMNS: Final = 100

# Only colors that suit light and dark notebooks.
_CELL: Final = "text-align:left;vertical-align:middle;padding:2px 10px 2px 0;border:0;background:none"
_NUMBER: Final = _CELL.replace("left", "right", 1) + ";white-space:nowrap"
_NAME: Final = _CELL + ";white-space:nowrap"
_CODE: Final = "white-space:pre-wrap;overflow-wrap:anywhere;background:none;color:inherit;padding:0"
_BAD: Final = "color:#e5534b"
_PALE: Final = "opacity:.65"


@dataclass(frozen=True, slots=True)
class _Row:
    """One record: its position, its bytes, or why they are not here."""

    position: int
    record: bytes | None
    size: int | None
    note: str
    is_damaged: bool


def records_html(records: Records) -> str:
    """A heading and the first records."""
    files = records._source.files()
    count = "1 file" if len(files) == 1 else f"{len(files):,} files"
    names = ", ".join(file[0] for file in files[:3]) + (", …" if len(files) > 3 else "")
    heading = f"<b>Records</b>: {len(records):,} records, {_escape(records.format)}, {count} ({_code(names, 200)})"
    if records.closed:
        return _div(heading, _pale("closed"))
    return _div(heading, _previews(records))


def info_html(about: Info) -> str:
    """The facts, each file, and the first records of the first file if it is a local file that is still the same."""
    parts = [_facts(about, len(about.files))]
    if len(about.files) > 1:
        parts.append(_files(about.files))
    previews = _previews_of_file(about.files[0]) if about.files else ""
    if previews:
        parts.append(f"The first records of {_code(about.files[0].path, 200)}:{previews}")
    return _div("<b>Info</b>", *parts)


def file_info_html(file: FileInfo) -> str:
    """The facts of one file."""
    return _div(f"<b>FileInfo</b>: {_code(file.path, 200)}", _facts(file, 1))


def report_html(report: Report) -> str:
    """Whether the files are whole, where their bytes are, and the first problems."""
    count = len(set(report.paths))
    what = f"{count:,} files" if count != 1 else _code(report.paths[0], 200)
    verdict = "<b>ok</b>, every byte is accounted for"
    if not report.ok:
        verdict = f'<b style="{_BAD}">{report.problem_count:,} problem{"s" if report.problem_count > 1 else ""}</b>'
    rows = [("format", _escape(report.format)), ("records", f"{report.records:,}"), ("chunks", f"{report.chunks:,}")]
    for name in ("file_bytes", "record_bytes", "meta_bytes", "unused_bytes", "damaged_bytes"):
        rows.append((name.replace("_", " "), f"{getattr(report, name):,}"))
    parts = [_two_columns(rows)]
    if report.problems:
        shown = [
            [(type(problem).__name__, _CELL), (_code(str(problem), 500), _CELL)]
            for problem in report.problems[:_SHOWN_PROBLEMS]
        ]
        parts.append(_table(["problem", ""], shown))
        if (more := report.problem_count - len(shown)) > 0:
            parts.append(_pale(f"and {more:,} more"))
    return _div(f"<b>Report</b>: {what}: {verdict}", *parts)


def _facts(about: Info | FileInfo, files: int) -> str:
    rows = [("format", _escape(about.format)), ("records", f"{about.records:,}"), ("chunks", f"{about.chunks:,}")]
    if files > 1:
        rows.append(("files", f"{files:,}"))
    rows += [("file bytes", f"{about.file_bytes:,}"), ("record bytes", f"{about.record_bytes:,}")]
    if about.decoded_bytes is not None:
        ratio = (
            "" if about.ratio is None else f" ({about.ratio:.2f} for each byte of the file{'s' if files > 1 else ''})"
        )
        rows.append(("decoded bytes", f"{about.decoded_bytes:,}{ratio}"))
    rows += [(name, _code(value, 200)) for name in ("codec", "options") if (value := getattr(about, name))]
    return _two_columns(rows)


def _files(files: tuple[FileInfo, ...]) -> str:
    rows = [
        [(_code(file.path, 200), _CELL), (_escape(file.format), _CELL), *((f"{n:,}", _NUMBER) for n in numbers)]
        for file in files[:_SHOWN_FILES]
        for numbers in [(file.records, file.file_bytes)]
    ]
    more = len(files) - len(rows)
    note = _pale(f"and {more:,} more files") if more else ""
    return _table(["file", "format", "records", "bytes"], rows) + note


def _previews_of_file(file: FileInfo) -> str:
    """The first records of a local file. A file without a table would have to be searched, so it must be small."""
    from pathlib import Path

    from anyrecord._records import open

    try:
        has_table = file.format in ("ffrecord", "array_record")
        if os.path.getsize(file.path) != file.file_bytes or not (has_table or file.file_bytes <= _LOCAL_BYTES):
            return ""
        with open(Path(file.path), format=file.format) as records:
            return _previews(records)
    except Exception:  # the file is gone, or is another one, or is not a path: then there is nothing to show
        return ""


def _previews(records: Records) -> str:
    if not len(records):
        return _pale("no records")
    is_remote = records._is_remote or records._source.options.store is not None
    shown = min(len(records), _REMOTE_RECORDS if is_remote else _LOCAL_RECORDS)
    if is_remote:
        rows = _within(_REMOTE_SECONDS, lambda: _read(records, shown, _REMOTE_BYTES))
        if rows is None:
            return _pale(f"the records did not arrive within {_REMOTE_SECONDS:g} seconds; show this again to try again")
    else:
        rows = _read(records, shown, _LOCAL_BYTES)
    pictures = _PICTURES_BYTES
    cells = []
    for row in rows:
        cell, used = _shown(row, pictures)
        pictures -= used
        cells.append(cell)
    more = len(records) - shown
    note = _pale(f"and {more:,} more") if more else ""
    return _table(["", "bytes", "kind", "preview"], cells) + note


def _read(records: Records, count: int, budget: int) -> list[_Row]:
    """Reads the first records, each alone, so that damage to one does not hide the others."""
    rows = []
    for position in range(count):
        size = None
        try:
            sizes = records[position : position + 1].sizes()
            size = sizes[0] if sizes else None
            _, _, _, begin, end = records._chunk(position)
            if max(size or 0, end - begin) > budget:
                rows.append(_Row(position, None, size, "too large to be read here", False))
                continue
            record = records[position]
            budget -= max(len(record), end - begin)
            rows.append(_Row(position, record, len(record), "", False))
        except Exception as error:
            rows.append(_Row(position, None, size, f"{type(error).__name__}: {error}", True))
    return rows


def _within(seconds: float, function: Callable[[], list[_Row]]) -> list[_Row] | None:
    from threading import Thread

    done: list[list[_Row]] = []
    thread = Thread(target=lambda: done.append(function()), name="anyrecord-notebook", daemon=True)
    thread.start()
    thread.join(seconds)
    return done[0] if done else None


def _shown(row: _Row, pictures: int) -> tuple[list[tuple[str, str]], int]:
    """The cells of a record, and how many bytes of pictures they hold."""
    cells = [(f"{row.position:,}", _NUMBER), ("?" if row.size is None else f"{row.size:,}", _NUMBER)]
    if row.record is None:
        note = f'<span style="{_BAD}">{_code(row.note, 500)}</span>' if row.is_damaged else _pale(row.note)
        return [*cells, ("damaged" if row.is_damaged else "", _CELL), (note, _CELL)], 0
    found = preview(row.record, width=_COLUMNS)
    summary = _code(found.summary, _COLUMNS)
    pixels = (found.details.get("width") or 0) * (found.details.get("height") or 0)
    size = len(row.record)
    is_picture = found.kind in _PICTURES and 0 < pixels <= _PICTURE_PIXELS and size <= min(pictures, _PICTURE_BYTES)
    if not is_picture:
        return [*cells, (_escape(found.kind), _CELL), (summary, _CELL)], 0
    from base64 import b64encode

    source = f"data:image/{found.kind};base64,{b64encode(row.record).decode()}"
    style = "max-height:72px;max-width:160px;margin:0;display:inline-block;vertical-align:middle"
    image = f'<img src="{source}" alt="{_escape(found.kind)}" style="{style}">'
    return [*cells, (_escape(found.kind), _CELL), (f"{image} {summary}", _CELL)], size


def _div(*parts: str) -> str:
    return "<div>" + "".join(f'<div style="margin:2px 0">{part}</div>' for part in parts) + "</div>"


def _two_columns(rows: Iterable[tuple[str, str]]) -> str:
    return _table([], [[(_pale(name), _NAME), (value, _CELL)] for name, value in rows])


def _table(heads: list[str], rows: Iterable[list[tuple[str, str]]]) -> str:
    head = "".join(f'<th style="{_NUMBER if name in ("bytes", "records") else _CELL}">{name}</th>' for name in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{style}">{cell}</td>' for cell, style in row) + "</tr>" for row in rows
    )
    return f'<table style="border-collapse:collapse;margin:2px 0">{f"<tr>{head}</tr>" if head else ""}{body}</table>'


def _pale(text: str) -> str:
    return f'<span style="{_PALE}">{_escape(text)}</span>'


def _code(text: str, columns: int) -> str:
    return f'<code style="{_CODE}">{_escape(clip(one_line(text), columns))}</code>'


def _escape(text: str) -> str:
    from html import escape

    return escape(text.encode("utf-8", "backslashreplace").decode())
