"""`anyrecord salvage`: saves what can still be read from damaged files."""

from __future__ import annotations

from typing import Any

import click

import anyrecord
from anyrecord.cli import _errors, _plan
from anyrecord.cli._inputs import Reading, reading_options, source_of
from anyrecord.cli._output import Output
from anyrecord.cli._params import COUNT, SOURCE
from anyrecord.cli._reports import compared_at_end, written_text
from anyrecord.cli._units import bytes_text, plural
from anyrecord.cli._verb import verb
from anyrecord.cli._writing import (
    RECORDS,
    Writing,
    dry_run_option,
    is_stdout,
    source_format_option,
    stdout,
    writing_options,
)

__all__ = ["command"]


@verb(
    "salvage",
    examples=[
        "anyrecord salvage bad.array_record good.array_record",
        "anyrecord salvage --dry-run bad.ffr",
        "anyrecord salvage 'broken/*.tfrecord' saved/ --format tfrecord",
        "anyrecord salvage s3://bucket/bad.ffr good.ffr --strict",
    ],
)
@click.argument("names", metavar="SOURCE... TARGET", type=SOURCE, nargs=-1, required=True)
@writing_options(*RECORDS)
@click.option("--strict", is_flag=True, help="Leave out records that were found by search after damage.")
@source_format_option
@reading_options("limit", "storage")
@click.option(
    "--problems",
    "shown_problems",
    type=COUNT,
    default=5,
    metavar="N",
    help="How many of the skipped parts are shown. The default is 5.",
)
@dry_run_option("Show what could be saved, and write nothing. TARGET can be left out.")
def command(
    out: Output,
    names: tuple[str, ...],
    reading: Reading,
    writing: Writing,
    strict: bool,
    source_format: str | None,
    shown_problems: int,
    dry_run: bool,
) -> int:
    """Save every record that can still be read from damaged files.

    The damaged files are never changed. The suffix of TARGET chooses the format, or --format does. If TARGET is a
    folder, or ends in a slash, each source becomes one file in it. - is standard input or output.

    The exit code is 0 if nothing was lost, and 1 if something was lost. In both cases the rest is saved.
    """
    if len(names) == 1 and not dry_run:
        raise click.UsageError("missing argument 'TARGET': where to save the records; or pass --dry-run")
    sources, target = (names[:-1], names[-1]) if len(names) > 1 else (names, None)
    source = source_of(sources)
    options: dict[str, Any] = {"strict": strict, "source_format": source_format, **reading.keywords}
    output = None
    if dry_run:
        _check(source, target, source_format, reading, writing)
    else:
        assert target is not None
        output = stdout(out) if is_stdout(target) else None
        options |= writing.keywords
    with out.progress("reading" if dry_run else "salvaging") as step:
        progress = step if dry_run or output is not None else compared_at_end(step)
        done = anyrecord.salvage(source, None if dry_run else output or target, progress=progress, **options)
    if out.as_json:
        out.write_json(_as_json(done, dry_run))
    else:
        _show(out, done, dry_run, shown_problems, output)
    return _errors.GOOD if done else _errors.DAMAGE


def _check(source: Any, target: str | None, source_format: str | None, reading: Reading, writing: Writing) -> None:
    """Raises what is wrong with the target before the sources are read."""
    if target is not None and not is_stdout(target) and isinstance(source, str | list):
        _plan.records(source, target, {**reading.keywords, "format": source_format}, writing, keep_sources=True)


def _show(out: Output, done: anyrecord.Salvaged, dry_run: bool, shown_problems: int, output: Any) -> None:
    def say(text: str, style: str = "", indent: int = 0) -> None:
        if output is None:
            out.paragraph((text, style), "", indent)
        else:  # standard output is for the records
            out.note(" " * indent + text)

    if dry_run:
        say(f"{plural(done.records, 'record')} could be saved; nothing was written, because of --dry-run")
    else:
        say(written_text("saved", done.records, done.paths, None if output is None else output.bytes))
    if done.found_by_search:
        say(f"{plural(done.found_by_search, 'record')} of them found by search after damage; --strict leaves them out")
    if done.unreadable_bytes:
        say(f"the disk could not read {plural(done.unreadable_bytes, 'byte')}", "bold red")
    if done.ok:
        say("nothing was lost", "green")
        return
    size = f"{bytes_text(done.lost_bytes)} of {bytes_text(done.source_bytes)}"
    say(f"lost {size}, in {plural(done.skipped_count, 'place')}", "bold red")
    for (_, begin, end), problem in list(zip(done.skipped, done.problems, strict=True))[:shown_problems]:
        say(f"bytes {begin:,} to {end:,}: {type(problem).__name__}: {_errors.message(problem)}", indent=2)
    if more := done.skipped_count - min(shown_problems, len(done.problems)):
        say(plural(more, "more place" if shown_problems else "place"), "dim", indent=2)


def _as_json(done: anyrecord.Salvaged, dry_run: bool) -> dict[str, Any]:
    names = (
        *("format", "records", "found_by_search", "skipped_count", "lost_bytes", "unreadable_bytes", "source_bytes"),
        "ok",
    )
    skipped = [
        {**_errors.described(problem), "path": path, "begin": begin, "end": end}
        for (path, begin, end), problem in zip(done.skipped, done.problems, strict=True)
    ]
    return {
        "dry_run": dry_run,
        **{name: getattr(done, name) for name in names},
        "found": [list(found) for found in done.found],
        "skipped": skipped,
        "sources": list(done.sources),
        "paths": list(done.paths),
    }
