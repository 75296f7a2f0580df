"""`anyrecord recover`: puts in order what killed writers left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import click

import anyrecord
from anyrecord._locations import redacted
from anyrecord._recover import left_by_writers
from anyrecord.cli import _errors
from anyrecord.cli._inputs import Reading, reading_options
from anyrecord.cli._output import Column, Output
from anyrecord.cli._params import SOURCE
from anyrecord.cli._reports import written_text
from anyrecord.cli._units import bytes_text, plural
from anyrecord.cli._verb import verb
from anyrecord.cli._writing import dry_run_option
from anyrecord.errors import PublishError

__all__ = ["command"]


@verb(
    "recover",
    examples=[
        "anyrecord recover train.ffr",
        "anyrecord recover --dry-run data/",
        "anyrecord recover train.ffr --keep new",
        "anyrecord recover train.ffr --salvage-to saved.ffr",
    ],
)
@click.argument("path", metavar="TARGET", type=SOURCE)
@click.option(
    "--keep",
    type=click.Choice(["new", "old"]),
    help="Which files to keep if publishing a set was interrupted.",
)
@click.option("--remove/--no-remove", default=True, help="Remove the temporary files. The default is to remove them.")
@click.option(
    "--salvage-to",
    type=SOURCE,
    metavar="FILE",
    help="Save the records in temporary files to FILE, and remove nothing. Its suffix chooses the format.",
)
@reading_options("storage")
@dry_run_option("Show what is there, and change nothing.")
def command(
    out: Output,
    path: str,
    reading: Reading,
    keep: Literal["old", "new"] | None,
    remove: bool,
    salvage_to: str | None,
    dry_run: bool,
) -> None:
    """Clean up after writers that were killed.

    TARGET is the name that was written to: a file, the name of a set of shards, or a folder. Temporary files of killed
    writers are removed, or saved with --salvage-to. Files of running writers are never touched.

    If a writer was killed while it gave the files of a set their names, --keep new finishes that, and --keep old takes
    it back.
    """
    interrupted: PublishError | None = None
    with out.progress("salvaging") as step:
        try:
            done = anyrecord.recover(
                path,
                keep=None if dry_run else keep,
                remove=remove and not dry_run,
                salvage_to=None if dry_run else salvage_to,
                progress=step,
                **reading.keywords,
            )
        except PublishError as error:
            if not dry_run:
                raise
            interrupted, left = error, left_by_writers(path)
            done = anyrecord.Recovered(interrupted=True, kept=None, paths=(), temporaries=tuple(left))
    if out.as_json:
        out.write_json(_as_json(path, done, interrupted, dry_run))
    else:
        _show(out, path, done, interrupted, dry_run)


def _show(out: Output, path: str, done: anyrecord.Recovered, interrupted: PublishError | None, dry_run: bool) -> None:
    if interrupted is not None:
        out.paragraph(("publishing was interrupted: ", "bold red"), _errors.message(interrupted))
    elif done.interrupted:
        out.line(f"publishing was interrupted; kept the {done.kept} set, {plural(len(done.paths), 'file')}")
    if done.temporaries:
        _table(out, done.temporaries)
    for saved in done.salvaged:
        out.line(written_text("saved", saved.records, saved.paths))
    removed = [file for file in done.temporaries if file.state == "removed"]
    stale = [file for file in done.temporaries if file.state == "stale"]
    if removed:
        size = bytes_text(sum(file.bytes for file in removed))
        out.line((f"removed {plural(len(removed), 'temporary file')}, {size}", "bold"))
    if stale and dry_run:
        files = plural(len(stale), "temporary file")
        out.paragraph(f"'anyrecord recover {path}' would remove {files}; with --salvage-to, it saves their records", "")
    if not done and not done.temporaries:
        out.line(f"{redacted(path)}: nothing to recover")


def _table(out: Output, files: Sequence[anyrecord.Temporary]) -> None:
    rows = [[file.state, bytes_text(file.bytes), file.path, file.why or ""] for file in files]
    columns = [Column("state"), Column("size", right=True), Column("temporary file"), Column("")]
    out.table(columns, rows)


def _as_json(path: str, done: anyrecord.Recovered, interrupted: PublishError | None, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "target": redacted(path),
        "interrupted": done.interrupted,
        "kept": done.kept,
        "paths": list(done.paths),
        "temporaries": [
            {"path": file.path, "bytes": file.bytes, "state": file.state, "why": file.why} for file in done.temporaries
        ],
        "salvaged": [{"paths": list(saved.paths), "records": saved.records} for saved in done.salvaged],
        "error": None if interrupted is None else _errors.described(interrupted),
    }
