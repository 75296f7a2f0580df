"""Which records a verb reads, and in which order. Each record comes with its number in what was opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import click

import anyrecord
from anyrecord.cli._inputs import Reading
from anyrecord.cli._output import Output
from anyrecord.cli._params import RANGES, Range

__all__ = ["Order", "count_of", "in_order", "order_options", "range_option", "read", "report_skipped"]

F = TypeVar("F", bound=Callable[..., Any])


class Order(NamedTuple):
    """Records in some order, and the number of the record at each position."""

    records: anyrecord.Records
    number_at: Callable[[int], int]


def range_option(function: F) -> F:
    """Adds the parameter `ranges`: the numbers of records, an empty tuple for all."""
    return click.option(
        "-r",
        "--range",
        "ranges",
        type=RANGES,
        default=(),
        metavar="NUMBERS",
        help="Only these records: 7, 10:20, -5:, ::100, or several with commas between them.",
    )(function)


def order_options(function: F) -> F:
    """Adds the parameters `is_reversed`, `seed` and `epoch`."""
    reverse = click.option("--reverse", "is_reversed", is_flag=True, help="Begin with the last record.")
    shuffle = click.option("--shuffle", "seed", type=int, metavar="SEED", help="Shuffle, as Records.shuffle does.")
    epoch = click.option("--epoch", type=int, metavar="N", help="Another order of the same seed, with --shuffle.")
    return reverse(shuffle(epoch(function)))


def in_order(
    records: anyrecord.Records, seed: int | None = None, epoch: int | None = None, is_reversed: bool = False
) -> Order:
    """The records in the order of the options. A range then counts positions in this order."""
    number_at: Callable[[int], int] = int
    if seed is None and epoch is not None:
        raise ValueError("--epoch needs --shuffle SEED")
    if seed is not None:
        shuffled = records.shuffle(seed, epoch or 0)
        number_at = anyrecord.Permutation(len(records), seed, epoch or 0).__getitem__
        records = shuffled
    if is_reversed:
        records, last, before = records[::-1], len(records) - 1, number_at

        def number_at(position: int) -> int:
            return before(last - position)

    return Order(records, number_at)


def read(order: Order, ranges: Sequence[Range] = ()) -> Iterator[tuple[int, bytes]]:
    """The records of the ranges, all by default, each with its number."""
    for part in ranges or (slice(None),):
        positions, view = _part(order.records, part)
        delivered = iter(view)
        for record in delivered:
            # Damaged records may have been left out, so the position is not a count.
            yield order.number_at(positions[delivered._position - 1]), record


def count_of(records: anyrecord.Records, ranges: Sequence[Range] = ()) -> int:
    """How many records the ranges have. Raises IndexError for a number that no record has."""
    return sum(len(_part(records, part)[0]) for part in ranges or (slice(None),))


def _part(records: anyrecord.Records, part: Range) -> tuple[range, anyrecord.Records]:
    count = len(records)
    if isinstance(part, int):
        number = part + count if part < 0 else part
        if not 0 <= number < count:
            there = f"there are {count:,} records, from 0 to {count - 1}" if count else "there are no records"
            raise IndexError(f"there is no record {part}: {there}")
        part = slice(number, number + 1)
    return range(count)[part], records[part]


def report_skipped(out: Output, records: anyrecord.Records, reading: Reading) -> int:
    """Says how many damaged records were left out or replaced. Returns the exit code."""
    from anyrecord.cli._errors import DAMAGE, GOOD
    from anyrecord.cli._units import plural

    skipped = records.skipped
    if not skipped:
        return GOOD
    what = "replaced" if reading.keywords.get("on_error") == "replace" else "left out"
    out.note(f"{plural(len(skipped), 'damaged record')} {'was' if len(skipped) == 1 else 'were'} {what}")
    return DAMAGE
