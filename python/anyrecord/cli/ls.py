"""`anyrecord ls`: the files of a set, the names in a packed folder, or the records of a file."""

from __future__ import annotations

import click

import anyrecord
from anyrecord._listing import walk
from anyrecord.cli._described import Places, as_json, batched, describe
from anyrecord.cli._inputs import Reading, reading_options, sources_argument
from anyrecord.cli._output import Column, Output, Part
from anyrecord.cli._packed import folder_of, is_packed
from anyrecord.cli._params import Range
from anyrecord.cli._selection import count_of, in_order, range_option, read, report_skipped
from anyrecord.cli._units import bytes_text, count_text
from anyrecord.cli._verb import verb

__all__ = ["command"]


@verb(
    "ls",
    examples=[
        "anyrecord ls 'train-*.array_record'                # its files",
        "anyrecord ls pets.ffr                              # names in a packed folder",
        "anyrecord ls -l train.tfrecord                     # its records",
        "anyrecord ls -r 0:100 'train-*.array_record'       # records of many files",
    ],
)
@sources_argument
@click.option("-l", "--long", "is_long", is_flag=True, help="Show more about each.")
@click.option("--files", "what", flag_value="files", help="List files.")
@click.option("--names", "what", flag_value="names", help="List the names in a packed folder.")
@click.option("--records", "what", flag_value="records", help="List records.")
@range_option
@reading_options("format", "checksums", "on_error", "limit", "storage", "cache")
def command(
    out: Output,
    sources: tuple[str, ...],
    is_long: bool,
    what: str | None,
    ranges: tuple[Range, ...],
    reading: Reading,
) -> int:
    """List files, names or records.

    Several files are listed as files. A packed folder is listed as names. Any other single file is listed as records:
    number, size and kind of each. With -l, files have sizes and counts, names have record numbers and sizes, and
    records have the place where they are stored.
    """
    if ranges and what not in (None, "records"):
        raise click.UsageError(f"--range lists records, which excludes --{what}")
    with reading.open(sources) as records:
        what = what or ("records" if ranges else _likely(records))
        if what == "files":
            _files(out, records, is_long)
        elif what == "names":
            _names(out, records, is_long)
        else:
            _records(out, records, ranges, is_long)
        return report_skipped(out, records, reading)


def _likely(records: anyrecord.Records) -> str:
    if len(records._source.files()) > 1:
        return "files"
    return "names" if is_packed(records) else "records"


def _files(out: Output, records: anyrecord.Records, is_long: bool) -> None:
    source = records._source
    found = list(zip(source.files(), source.descriptions(), strict=True))
    if out.as_json:
        for (path, *_), (format, count, _, size, *_) in found:
            out.write_json({"path": path, "format": format, "records": count, "file_bytes": size})
    elif is_long:
        columns = [Column("records", right=True), Column("size", right=True), Column("format"), Column("file")]
        rows: list[list[Part]] = [
            [count_text(count), bytes_text(size), format, path] for (path, *_), (format, count, _, size, *_) in found
        ]
        out.table(columns, rows)
    else:
        for (path, *_), _ in found:
            out.line(path)


def _names(out: Output, records: anyrecord.Records, is_long: bool) -> None:
    folder = folder_of(records)
    sizes = records.sizes()
    assert sizes is not None, "ffrecord stores sizes"
    widths = len(str(len(records))), len(bytes_text(max(sizes)))
    for name, node in walk(folder._listing.tree):
        number = node if isinstance(node, int) else None
        size = None if number is None else sizes[number]
        if out.as_json:
            kind = "folder" if number is None else "file"
            out.write_json({"name": name, "type": kind, "record": number, "size": size})
            continue
        shown = name if number is not None else f"{name}/"
        if not is_long:
            out.line(shown)
            continue
        columns = (count_text(number).replace(",", ""), bytes_text(size))
        out.line((f"{columns[0]:>{widths[0]}}", "dim"), f"  {columns[1]:>{widths[1]}}  ", shown)


def _records(out: Output, records: anyrecord.Records, ranges: tuple[Range, ...], is_long: bool) -> None:
    count_of(records, ranges)  # a number that is not there is an error before anything is written
    rows = (describe(number, record) for number, record in read(in_order(records), ranges))
    places = Places(records)
    if out.as_json:
        for row in rows:
            out.write_json(as_json(row, places))
        return
    width = len(str(max(len(records) - 1, 0)))
    for batch in batched(rows):
        kind = max(len(row.preview.kind) for row in batch)
        size = max(len(bytes_text(row.size)) for row in batch)
        for row in batch:
            parts: list[Part] = [(f"{row.number:>{width}}", "dim"), f"  {bytes_text(row.size):>{size}}  "]
            if is_long:
                path, chunk, place = places.at(row.number)
                parts += [(f"{row.preview.kind:<{kind}}", "cyan"), f"  {path}, chunk {chunk}, row {place}"]
            else:
                parts.append((row.preview.kind, "cyan"))
            out.line(*parts)
