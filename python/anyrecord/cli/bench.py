"""`anyrecord bench`: how fast your own files are read here, beside the original library."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import click

import anyrecord
from anyrecord._copying import cores
from anyrecord._locations import is_url
from anyrecord.cli import _page_cache
from anyrecord.cli._contenders import Contender, Missing, Ours, Part, original_of, parts_of
from anyrecord.cli._inputs import Reading, reading_options, source_of, sources_argument
from anyrecord.cli._output import Column, Output
from anyrecord.cli._output import Part as Cell
from anyrecord.cli._params import COUNT_FROM_1
from anyrecord.cli._timing import MOST_KEYS, Job, Measured, measure
from anyrecord.cli._units import bytes_text, plural
from anyrecord.cli._verb import verb

__all__ = ["command"]

WAYS = {"in order": "in order", "single": "random", "batch": "batches"}
BATCH_BYTES = 64 << 20
"""A batch has at most about so many bytes, so that large records do not fill the memory."""
COMPARED = 16
"""So many records of both libraries are compared before the clock runs."""
LEAST, LEAST_BYTES = 1000, 16 << 20
"""So many records, or bytes, are read in order at least, if there are as many."""
FEW = 100
"""Fewer records in order give no ratio, unless they have `LEAST_BYTES`: what it costs to begin would decide it."""
_SHORT = 0.005
"""A measurement that takes less than these seconds is not worth much."""


@verb(
    "bench",
    examples=[
        "anyrecord bench train.array_record",
        "anyrecord bench 'train-*.tfrecord' --batch 512",
        "anyrecord bench train.ffr --cold",
        "anyrecord bench --json train.array_record | jq '.results[].ratio'",
    ],
)
@sources_argument
@click.option("--batch", type=COUNT_FROM_1, default=256, metavar="N", help="Records in a batch. The default is 256.")
@click.option("--cold", is_flag=True, help="Also measure files that are not in the page cache.")
@click.option(
    "--seconds", type=float, default=0.5, metavar="S", help="About how long one measurement takes. The default is 0.5."
)
@click.option(
    "--rounds", type=COUNT_FROM_1, default=3, metavar="N", help="The best of N rounds counts. The default is 3."
)
@click.option("--seed", type=int, default=11, metavar="N", help="Another number reads other random records.")
@click.option(
    "--original/--no-original", default=True, help="Measure the original library, too. The default is to do so."
)
@reading_options("format", "checksums", "io", "threads", "limit", "storage", "cache")
def command(
    out: Output,
    sources: tuple[str, ...],
    reading: Reading,
    batch: int,
    cold: bool,
    seconds: float,
    rounds: int,
    seed: int,
    original: bool,
) -> None:
    """Measure how fast your own files are read here.

    Records are read in order, at random one by one, and at random in batches. If the library that the format comes from
    is installed (array_record, ffrecord, recordio, tensorflow), it reads the same records, and the last column says how
    many times as fast anyrecord is. Each library is used in its fastest way. Nothing is written.

    Files are in the page cache unless you pass --cold. It takes some seconds, whatever the size of the files, and
    little memory. For good figures let nothing else run.
    """
    if not 0 < seconds <= 3600:
        raise click.BadParameter("it must be a number above 0, and at most 3600", param_hint="--seconds")
    source = source_of(sources)
    if not isinstance(source, str | list):
        raise ValueError("bench needs names of files, because it opens them several times; - is not possible here")

    def opened() -> anyrecord.Records:
        return anyrecord.open(source, **reading.keywords)

    with opened() as records:
        about, parts = _about(records), parts_of(records)
    if not about.records:
        raise ValueError("there are no records to read")
    size = max(1, min(batch, about.records, MOST_KEYS, BATCH_BYTES // max(about.mean_bytes, 1)))
    most = max(1, BATCH_BYTES // 4 // max(about.mean_bytes, 1))
    other = _original(out, about, parts, original, opened, most)
    opens: dict[str, Callable[[], Contender]] = {"anyrecord": lambda: Ours(opened, most)}
    ways = {"anyrecord": Ours.ways}
    if not isinstance(other, Missing):
        opens[other[0].name], ways[other[0].name] = other[1], other[0].ways
    least = max(1, min(LEAST, LEAST_BYTES // max(about.mean_bytes, 1)))
    job = Job(opens, about.records, size, seconds, rounds, seed, least)
    why_not = _why_not(parts) if cold else None
    found = [*_measured(out, job, ways, "measuring")]
    if cold and why_not is None:
        cool = job._replace(cool=lambda: _page_cache.cool({part.path for part in parts}))
        found += _measured(out, cool, ways, "measuring cold files")
    if out.as_json:
        out.write_json(_as_json(about, job, found, other, why_not))
    else:
        _show(out, about, job, found, other, why_not)


class _About(NamedTuple):
    """What is measured."""

    format: str
    files: int
    records: int
    file_bytes: int
    mean_bytes: int
    codec: str | None


def _about(records: anyrecord.Records) -> _About:
    rows = records._source.descriptions()
    formats, codecs = {row[0] for row in rows}, {row[6] for row in rows}
    return _About(
        format=formats.pop() if len(formats) == 1 else "mixed",
        files=len(rows),
        records=len(records),
        file_bytes=sum(row[3] for row in rows),
        mean_bytes=_mean_bytes(records),
        codec=codecs.pop() if len(codecs) == 1 else None,
    )


def _mean_bytes(records: anyrecord.Records) -> int:
    some = [number * (len(records) - 1) // COMPARED for number in range(COMPARED + 1)] if len(records) else []
    return round(sum(len(records[index]) for index in some) / max(len(some), 1))


def _original(
    out: Output,
    about: _About,
    parts: Sequence[Part],
    is_wanted: bool,
    opened: Callable[[], anyrecord.Records],
    most: int,
) -> tuple[Contender, Callable[[], Contender]] | Missing:
    """The original library, if it reads the same records as we do."""
    if not is_wanted:
        return Missing("the original", "not asked for")
    with out.progress("opening"):
        found = original_of(about.format, parts, about.codec, most)
        if isinstance(found, Missing):
            return found
        some = sorted({number * (about.records - 1) // COMPARED for number in range(COMPARED + 1)})
        if "single" not in found[0].ways:
            some = list(range(min(COMPARED, about.records)))
        with closing(found[0]) as other, opened() as records:
            try:
                is_same = [bytes(record) for record in other.records(some)] == records[some]
            except Exception as error:  # whatever an original raises
                return Missing(other.name, f"not compared: {type(error).__name__}: {error}")
        return found if is_same else Missing(found[0].name, "not compared: it reads other records")


def _why_not(parts: Sequence[Part]) -> str | None:
    if any(is_url(part.path) for part in parts):
        return "URLs are not in the page cache"
    return _page_cache.why_not({part.path for part in parts})


def _measured(out: Output, job: Job, ways: dict[str, frozenset[str]], label: str) -> Iterator[Measured]:
    with out.progress(label, unit="ways") as step:
        for number, way in enumerate(WAYS):
            if step is not None:
                step(number, len(WAYS))
            yield measure(job, way, ways)


# -- for people --


def _show(
    out: Output,
    about: _About,
    job: Job,
    found: Sequence[Measured],
    other: tuple[Contender, Callable[[], Contender]] | Missing,
    why_not: str | None,
) -> None:
    out.line(
        f"{plural(about.files, 'file')}, {about.format}, {plural(about.records, 'record')} of about "
        f"{bytes_text(about.mean_bytes)}, {bytes_text(about.file_bytes)}; {plural(cores(), 'core')}"
    )
    name = None if isinstance(other, Missing) else other[0].name
    columns = [
        Column("reading"),
        Column("records", right=True),
        Column("anyrecord", right=True),
        Column("", right=True),
    ]
    if name is not None:
        columns += [Column(name, right=True), Column("ratio", right=True)]
    rows: list[list[Cell]] = []
    for one in found:
        label = f"{WAYS[one.way]} of {job.batch}" if one.way == "batch" else WAYS[one.way]
        took = one.seconds["anyrecord"]
        row: list[Cell] = [f"{label}, cold" if one.is_cold else label, f"{one.records:,}"]
        row += [(f"{one.records / took:,.0f}/s", "bold"), f"{bytes_text(round(one.bytes / took))}/s"]
        if name is not None:
            rate, ratio = one.rate(name), _ratio(one, name)
            row += ["-" if rate is None else f"{rate:,.0f}/s", "-" if ratio is None else f"{ratio:.1f}x"]
        rows.append(row)
    out.table(columns, rows)
    if isinstance(other, Missing):
        out.line((f"{other.name}: {other.why}", "dim"))
    else:
        out.line((f"{other[0].name} {other[0].version}; ratio: how many times as fast anyrecord is", "dim"))
        if few := next((one for one in found if _is_few(one)), None):
            text = f"no ratio in order: {plural(few.records, 'record')} would mostly measure what it costs to begin"
            out.line((text, "yellow"))
    if min(one.seconds["anyrecord"] for one in found) < _SHORT:
        out.line(("little was read: what it costs to begin counts, too", "yellow"))
    if why_not is not None:
        out.line((f"cold files were not measured: {why_not}", "yellow"))


def _ratio(one: Measured, name: str) -> float | None:
    return one.seconds[name] / one.seconds["anyrecord"] if name in one.seconds and not _is_few(one) else None


def _is_few(one: Measured) -> bool:
    """Whether so little was read that what it costs to begin would decide the ratio."""
    return one.way == "in order" and one.records < FEW and one.bytes < LEAST_BYTES


# -- for machines --


def _as_json(
    about: _About,
    job: Job,
    found: Sequence[Measured],
    other: tuple[Contender, Callable[[], Contender]] | Missing,
    why_not: str | None,
) -> dict[str, Any]:
    name = None if isinstance(other, Missing) else other[0].name
    return {
        "anyrecord": anyrecord.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores(),
        **about._asdict(),
        "batch": job.batch,
        "seed": job.seed,
        "rounds": job.rounds,
        "original": {
            "name": other.name if isinstance(other, Missing) else other[0].name,
            "version": None if isinstance(other, Missing) else other[0].version,
            "why_not": other.why if isinstance(other, Missing) else None,
        },
        "cold_why_not": why_not,
        "results": [
            {
                "way": one.way,
                "cold": one.is_cold,
                "records": one.records,
                "bytes": one.bytes,
                "seconds": one.seconds["anyrecord"],
                "records_per_second": one.rate("anyrecord"),
                "original_seconds": None if name is None else one.seconds.get(name),
                "original_records_per_second": None if name is None else one.rate(name),
                "ratio": None if name is None else _ratio(one, name),
            }
            for one in found
        ],
    }
