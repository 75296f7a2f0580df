"""`anyrecord head`: what the first records are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice

import click

from anyrecord.cli._described import Places, Row, as_json, batched, describe
from anyrecord.cli._inputs import Reading, reading_options, sources_argument
from anyrecord.cli._output import Output, Part
from anyrecord.cli._params import COUNT, Range
from anyrecord.cli._selection import count_of, in_order, range_option, read, report_skipped
from anyrecord.cli._units import bytes_text
from anyrecord.cli._verb import verb

__all__ = ["command"]

_COUNT = 10
"""How many records are shown by default."""
_WIDTH = 100
"""The width of lines where there is no terminal."""


@verb(
    "head",
    examples=[
        "anyrecord head train.array_record",
        "anyrecord head -n 3 -l 'train-*.tfrecord'",
        "anyrecord head -r -5: train.ffr                    # the last five",
        "anyrecord head --json train.ffr | jq .details",
    ],
)
@sources_argument
@click.option("-n", "count", type=COUNT, metavar="N", help=f"How many records. Default: {_COUNT}, or all of --range.")
@range_option
@click.option("-l", "--long", "is_long", is_flag=True, help="Show several lines for each record, with all details.")
@reading_options("format", "checksums", "on_error", "limit", "storage", "cache")
def command(
    out: Output,
    sources: tuple[str, ...],
    count: int | None,
    ranges: tuple[Range, ...],
    is_long: bool,
    reading: Reading,
) -> int:
    """Show what the first records are.

    Each line is a record: its number, its size, its kind, and a summary. Kinds are text, json, msgpack, tf_example,
    png, jpeg, webp, npy and more; anything else is shown in hex. A pickle is named and never loaded.
    """
    with reading.open(sources) as records:
        count_of(records, ranges)  # a number that is not there is an error before anything is written
        found = read(in_order(records), ranges)
        limit = _COUNT if count is None and not ranges else count
        limit = None if limit is None else min(limit, len(records))
        rows = (describe(number, record, out.width or _WIDTH) for number, record in islice(found, limit))
        places = Places(records)
        if out.as_json:
            for row in rows:
                more = {"summary": row.preview.summary, "details": row.preview.details}
                out.write_json(as_json(row, places) | more)
        elif is_long:
            for row in rows:
                _show_long(out, row, places)
        else:
            for batch in batched(rows):
                _show(out, batch)
        return report_skipped(out, records, reading)


def _show(out: Output, rows: Sequence[Row]) -> None:
    from anyrecord._preview import clip

    number = max(len(str(row.number)) for row in rows)
    size = max(len(bytes_text(row.size)) for row in rows)
    kind = max(len(row.preview.kind) for row in rows)
    left = max((out.width or _WIDTH) - number - size - kind - 6, 10)
    for row in rows:
        summary = clip(row.preview.summary, left)
        parts: list[Part] = [
            (f"{row.number:>{number}}", "dim"),
            f"  {bytes_text(row.size):>{size}}  ",
            (f"{row.preview.kind:<{kind}}" if summary else row.preview.kind, "cyan"),
        ]
        out.line(*parts, *([f"  {summary}"] if summary else []))


def _show_long(out: Output, row: Row, places: Places) -> None:
    path, chunk, place = places.at(row.number)
    out.line((f"record {row.number}", "bold"), f"  {bytes_text(row.size)}  ", (row.preview.kind, "cyan"))
    pairs: list[tuple[str, Part]] = [("stored in", f"{path}, chunk {chunk}, row {place}")]
    details = {name: value for name, value in row.preview.details.items() if value is not None}
    if not details and row.preview.summary:
        details = {"summary": row.preview.summary}
    pairs += [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in details.items()]
    out.fields(pairs, indent=2)
