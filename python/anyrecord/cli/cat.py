"""`anyrecord cat`: records as they are, to standard output."""

from __future__ import annotations

from anyrecord.cli._delivery import delivery_options, write_records
from anyrecord.cli._inputs import Reading, reading_options, sources_argument
from anyrecord.cli._output import Output
from anyrecord.cli._params import Range
from anyrecord.cli._selection import count_of, in_order, order_options, range_option, read, report_skipped
from anyrecord.cli._verb import verb

__all__ = ["command"]


@verb(
    "cat",
    examples=[
        "anyrecord cat --newline reviews.tfrecord | jq .stars",
        "anyrecord cat -r 0:1000 'train-*.array_record' > first-thousand.bin",
        "anyrecord cat --json --shuffle 42 train.ffr | head -n 3",
        "cat train.recordio | anyrecord cat --length-prefixed - > train.bin",
    ],
)
@sources_argument
@range_option
@order_options
@delivery_options
@reading_options(
    *("format", "checksums", "on_error", "max_errors", "expected_records"),
    *("io", "threads", "limit", "storage", "cache", "cache_folder_bytes"),
)
def command(
    out: Output,
    sources: tuple[str, ...],
    ranges: tuple[Range, ...],
    is_reversed: bool,
    seed: int | None,
    epoch: int | None,
    between: str | None,
    reading: Reading,
) -> int:
    """Write records to standard output.

    By default the bytes of all records follow each other, with nothing between them. With --json, each record is one
    line, with its bytes in base64. On a terminal, control characters are escaped and each record begins on a new line.
    """
    with reading.open(sources) as records:
        total = count_of(records, ranges)
        order = in_order(records, seed, epoch, is_reversed)
        if out.is_terminal:  # a bar would be in the way
            write_records(out, read(order, ranges), between)
        else:
            with out.progress("writing", unit="records") as step:
                write_records(out, read(order, ranges), between, step, total)
        return report_skipped(out, records, reading)
