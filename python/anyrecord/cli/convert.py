"""`anyrecord convert`: from record files of any format to files of any other."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

import anyrecord
from anyrecord.cli import _errors, _plan
from anyrecord.cli._inputs import Reading, reading_options, source_of
from anyrecord.cli._output import Output
from anyrecord.cli._reports import compared_at_end, skipped_json, written_text
from anyrecord.cli._units import bytes_text, plural
from anyrecord.cli._verb import verb
from anyrecord.cli._writing import (
    RECORDS,
    Writing,
    dry_run_option,
    is_stdout,
    source_format_option,
    sources_and_target_arguments,
    stdout,
    writing_options,
)

__all__ = ["command"]


@verb(
    "convert",
    examples=[
        "anyrecord convert old.tfrecord new.array_record",
        "anyrecord convert 'train-*.tfrecord' train.array_record --shards 16",
        "anyrecord convert logs/ packed/ --format recordio --codec gzip",
        "anyrecord convert 'big.ffr[0:1000]' s3://bucket/sample.ffr",
        "zcat x.recordio.gz | anyrecord convert - - --format tfrecord > x.tfrecord",
    ],
)
@sources_and_target_arguments
@writing_options(*RECORDS)
@click.option("--verify/--no-verify", default=True, help="Read what was written and compare. The default is to do so.")
@source_format_option
@reading_options("on_error", "max_errors", "limit", "storage")
@dry_run_option("Show what would be written, and write nothing.")
def command(
    out: Output,
    sources: tuple[str, ...],
    target: str,
    reading: Reading,
    writing: Writing,
    source_format: str | None,
    verify: bool,
    dry_run: bool,
) -> int:
    """Convert record files to another format, or to shards.

    All records go to TARGET, in the order of the sources. The suffix of TARGET chooses the format, or --format does. If
    TARGET is a folder, or ends in a slash, each source becomes one file in it. - is standard input or output.

    The new files appear when all of them are complete. Ctrl-C leaves nothing behind. The exit code is 1 if damaged
    records were left out or replaced because of --on-error.
    """
    source, output = source_of(sources), stdout(out) if is_stdout(target) else None
    if dry_run:
        _show_plan(out, source, target, {**reading.keywords, "format": source_format}, writing)
        return _errors.GOOD
    given = {**reading.keywords, "source_format": source_format}
    with ExitStack() as closing, out.progress("converting", unit="bytes" if _is_path(source) else "records") as step:
        if not _is_path(source):
            given["format"] = given.pop("source_format")
            source, given = closing.enter_context(anyrecord.open(source, **given)), {}
        done = anyrecord.convert(
            source,
            target if output is None else output,
            progress=compared_at_end(step),
            verify=verify,
            **given,
            **writing.keywords,
        )
    code = _errors.DAMAGE if done.skipped else _errors.GOOD
    if out.as_json:
        out.write_json(_as_json(done, verify))
        return code
    if done.skipped:
        out.note(f"{plural(len(done.skipped), 'damaged record')} left out or replaced")
    size = done.file_bytes if output is None else output.bytes
    text = written_text("converted", done.records, done.paths, size, done.format)
    if output is None:
        out.paragraph(text, "")
    else:
        out.note(text)
    return code


def _is_path(source: Any) -> bool:
    return isinstance(source, str | list)


def _show_plan(out: Output, source: Any, target: str, reading: dict[str, Any], writing: Writing) -> None:
    if not _is_path(source) or is_stdout(target):
        raise ValueError("--dry-run needs names of files: it does not read standard input, or write standard output")
    format, made = _plan.records(source, target, reading, writing)
    if out.as_json:
        out.write_json({"dry_run": True, "format": format, "files": [one.as_json() for one in made]})
        return
    files = sum(len(one.sources) for one in made)
    size = bytes_text(sum(one.source_bytes for one in made))
    _plan.show(out, made, f"{plural(files, 'file')}, {size}, would become {format}")


def _as_json(done: anyrecord.Converted, verify: bool) -> dict[str, Any]:
    return {
        "dry_run": False,
        "format": done.format,
        "records": done.records,
        "source_bytes": done.source_bytes,
        "file_bytes": done.file_bytes,
        "paths": list(done.paths),
        "verified": verify,
        "skipped": [skipped_json(one) for one in done.skipped],
    }
