"""`anyrecord get`: some records by their numbers, or files of a packed folder by their names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import click

import anyrecord
from anyrecord.cli._delivery import delivery_options, write_records
from anyrecord.cli._inputs import Reading, reading_options, source_argument
from anyrecord.cli._output import Output
from anyrecord.cli._packed import folder_of, is_packed
from anyrecord.cli._params import RANGES, Range
from anyrecord.cli._selection import count_of, in_order, read, report_skipped
from anyrecord.cli._verb import verb

__all__ = ["command"]

_NUMBERS = re.compile(r"[-0-9:,\s]+")
_FIELD = re.compile(r"\{(\w*)(?::0?([0-9]{1,2}))?\}")
_EXTENSIONS = {
    **{"text": "txt", "jpeg": "jpg", "pickle": "pkl", "gzip": "gz", "zstd": "zst", "bytes": "bin", "empty": "bin"},
    **{"tf_example": "pb", "tf_sequence_example": "pb"},
}


class _Found(NamedTuple):
    """A record, and its name if it is a file of a packed folder."""

    number: int
    record: bytes
    name: str | None


@verb(
    "get",
    examples=[
        "anyrecord get train.ffr 7 > seventh.bin",
        "anyrecord get 'train-*.array_record' 7 -1 100:110 -o '{record:05}.{ext}'",
        "anyrecord get pets.ffr dogs/rex.png > rex.png",
        "anyrecord get train.ffr 0 --json | jq -r .data | base64 -d",
    ],
    takes_negative=True,
)
@source_argument
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="PATTERN", help="Write files of this name. It can have {record}, {name}, {ext}."
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@click.option("--names", "are_names", is_flag=True, help="KEYs are names, also those that look like numbers.")
@delivery_options
@reading_options("format", "checksums", "io", "limit", "storage", "cache", "cache_folder_bytes")
def command(
    out: Output,
    source: str,
    keys: tuple[str, ...],
    output: str | None,
    overwrite: bool,
    are_names: bool,
    between: str | None,
    reading: Reading,
) -> int:
    """Write some records to standard output or to files.

    A KEY is the number of a record (-1 is the last one), a range such as 10:20, or a name in a packed folder. With
    -o, each record becomes a file: {record} is its number, {record:05} has five digits, {name} is its name in the
    packed folder, and {ext} is a suffix that fits what it is, such as png.
    """
    for key in keys:
        if key.startswith("--"):
            raise click.NoSuchOption(key, ctx=click.get_current_context())
    with reading.open(source) as records:
        chosen = _chosen(records, keys, are_names)
        if output is None:
            write_records(out, ((found.number, found.record) for found in _read(records, chosen)), between)
        else:
            _write_files(out, records, chosen, output, overwrite)
        return report_skipped(out, records, reading)


def _chosen(records: anyrecord.Records, keys: tuple[str, ...], are_names: bool) -> list[tuple[Range, str | None]]:
    """Numbers and ranges, each with a name if it was given by name. What is not there is an error at once."""
    chosen: list[tuple[Range, str | None]] = []
    folder: anyrecord.Folder | None = None
    for key in keys:
        if _NUMBERS.fullmatch(key) and not are_names:
            chosen += [(part, None) for part in RANGES.convert(key, None, None)]
            continue
        if folder is None:
            if not is_packed(records):
                raise ValueError(f"{key!r} is not a number, and {records.paths[0]} is not a packed folder with names")
            folder = folder_of(records)
        if not folder.is_file(key):
            what = "is a folder" if folder.exists(key) else "is not in it"
            raise IndexError(
                f"{records.paths[0]} is a packed folder, and {key!r} {what}; 'anyrecord ls' lists its names"
            )
        chosen.append((folder._record_of(key), key))
    count_of(records, [part for part, _ in chosen])
    return chosen


def _read(records: anyrecord.Records, chosen: list[tuple[Range, str | None]]) -> Iterator[_Found]:
    order = in_order(records)
    for part, name in chosen:
        for number, record in read(order, [part]):
            yield _Found(number, record, name)


def _write_files(
    out: Output, records: anyrecord.Records, chosen: list[tuple[Range, str | None]], pattern: str, overwrite: bool
) -> None:
    from anyrecord.cli._new_files import write_new_file

    is_folder = os.path.isdir(pattern) or pattern.endswith(("/", os.sep))
    fields = {found[1] for found in _FIELD.finditer(pattern)}
    if wrong := fields - {"record", "name", "ext"}:
        raise ValueError(f"--output has no field {{{min(wrong)}}}; it has {{record}}, {{name}} and {{ext}}")
    if not is_folder and not fields & {"record", "name"} and count_of(records, [part for part, _ in chosen]) > 1:
        raise ValueError("--output names one file, but there are several records; put {record} or {name} into it")
    for found in _read(records, chosen):
        path = pattern
        if is_folder:
            path = os.path.join(pattern, "{record}.{ext}" if found.name is None else "{name}")
        path = _FIELD.sub(lambda field, found=found: _value(field, found), path)  # type: ignore[misc]
        write_new_file(path, found.record, overwrite=overwrite)
        if out.as_json:
            out.write_json({"record": found.number, "size": len(found.record), "path": path})
        else:
            out.line(path)


def _value(field: re.Match[str], found: _Found) -> str:
    if field[1] == "record":
        return f"{found.number:0{field[2] or 0}}"
    if field[1] == "ext":
        from anyrecord.cli._described import describe

        kind = describe(found.number, found.record).preview.kind
        return _EXTENSIONS.get(kind, kind)
    if found.name is None:
        raise ValueError("--output has {name}, which only records have that are given by name; write {record}")
    return found.name.rstrip("/").rpartition("/")[2]
