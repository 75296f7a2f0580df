"""`anyrecord info`: what files are, without reading their records."""

from __future__ import annotations

import os
from typing import Any

import anyrecord
from anyrecord._locations import is_url
from anyrecord.cli._inputs import Reading, reading_options, source_of, sources_argument
from anyrecord.cli._output import Column, Output, Part
from anyrecord.cli._units import bytes_text, count_text, plural
from anyrecord.cli._verb import verb

__all__ = ["command"]

_HAVE_TABLE = frozenset({"array_record", "ffrecord"})
"""The formats that store where each record is."""


@verb(
    "info",
    examples=[
        "anyrecord info train.array_record",
        "anyrecord info 'train-*.tfrecord'",
        "anyrecord info s3://bucket/train.ffr@16 --storage region=eu-west-1",
        "anyrecord info --json train.ffr | jq .records",
    ],
)
@sources_argument
@reading_options("format", "limit", "storage")
def command(out: Output, sources: tuple[str, ...], reading: Reading) -> None:
    """Show format, number of records, sizes and compression.

    Only the tables of files are read, not their records. Several files are a table with one row for each, and a total.
    """
    about = anyrecord.info(source_of(sources), **reading.keywords)
    if out.as_json:
        out.write_json(_as_json(about))
    elif len(about.files) == 1:
        _show_one(out, about.files[0])
    else:
        _show_many(out, about)


def _as_json(about: anyrecord.Info) -> dict[str, Any]:
    names = ("format", "records", "chunks", "file_bytes", "record_bytes", "decoded_bytes", "ratio", "codec", "options")
    files = [
        {"path": file.path, **{name: getattr(file, name) for name in names}, "index": _index_of(file)}
        for file in about.files
    ]
    return {**{name: getattr(about, name) for name in names}, "files": files}


def _show_one(out: Output, file: anyrecord.FileInfo) -> None:
    out.line((file.path, "bold"))
    pairs: list[tuple[str, Part]] = [
        ("format", file.format),
        ("records", count_text(file.records)),
        ("size", _exact(file.file_bytes)),
    ]
    if file.records:
        pairs.append(("chunks", f"{count_text(file.chunks)}, {_each(file.records, file.chunks)}"))
    if file.decoded_bytes is not None:
        pairs.append(("decoded", _exact(file.decoded_bytes)))
        if file.records:
            pairs.append(("mean record", bytes_text(round(file.decoded_bytes / file.records))))
    if file.codec is not None:
        saves = file.codec != "none" and file.ratio is not None and file.ratio > 1
        pairs.append(("codec", f"{file.codec}, ratio {file.ratio:.2f}" if saves else file.codec))
    if file.options:
        pairs.append(("options", file.options))
    pairs.append(("index", _index_text(file)))
    out.fields(pairs, indent=2)


def _show_many(out: Output, about: anyrecord.Info) -> None:
    is_mixed = about.format == "mixed"
    columns = [
        Column("file"),
        *([Column("format")] if is_mixed else []),
        Column("records", right=True),
        Column("chunks", right=True),
        Column("size", right=True),
        Column("codec"),
    ]
    rows: list[list[Part]] = [
        [
            file.path,
            *([file.format] if is_mixed else []),
            count_text(file.records),
            count_text(file.chunks),
            bytes_text(file.file_bytes),
            file.codec or "-",
        ]
        for file in about.files
    ]
    out.table(columns, rows)
    total = f"{plural(len(about.files), 'file')}, {about.format}, {plural(about.records, 'record')}"
    out.line((f"{total}, {_exact(about.file_bytes)}", "bold"))


def _exact(size: int) -> str:
    return bytes_text(size) if size < 1024 else f"{bytes_text(size)} ({size:,} bytes)"


def _each(records: int, chunks: int) -> str:
    if chunks == 0:
        return "empty"
    mean = records / chunks
    if records % chunks == 0:
        return f"{plural(int(mean), 'record')} in each"
    return f"{mean:,.1f} records in each, on average"


def _index_of(file: anyrecord.FileInfo) -> str | None:
    """The path of the index beside a local file, if there is one."""
    folder, name = os.path.split(file.path)
    path = os.path.join(folder, f".{name}.index")
    return path if not is_url(file.path) and os.path.isfile(path) else None


def _index_text(file: anyrecord.FileInfo) -> str:
    if file.format in _HAVE_TABLE:
        return "in the file"
    if is_url(file.path):
        return "not in the file"
    return _index_of(file) or "none; opening reads the headers of all chunks"
