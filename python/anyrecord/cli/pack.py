"""`anyrecord pack`: stores a folder as one file."""

from __future__ import annotations

import click

import anyrecord
from anyrecord._locations import redacted
from anyrecord._packing import planned
from anyrecord.cli._inputs import Reading, reading_options
from anyrecord.cli._output import Output
from anyrecord.cli._params import SOURCE
from anyrecord.cli._units import bytes_text, plural
from anyrecord.cli._verb import verb
from anyrecord.cli._writing import Writing, dry_run_option, is_stdout, stdout, target_argument, writing_options

__all__ = ["command"]


@verb(
    "pack",
    examples=[
        "anyrecord pack pictures/ pictures.ffr",
        "anyrecord pack pictures/ s3://bucket/pictures.ffr --overwrite",
        "anyrecord pack pictures/ - | ssh host 'cat > pictures.ffr'",
    ],
)
@click.argument("folder", metavar="FOLDER", type=SOURCE)
@target_argument
@writing_options("overwrite", "durable")
@reading_options("storage")
@dry_run_option("Show what would be packed, and write nothing.")
def command(out: Output, folder: str, target: str, reading: Reading, writing: Writing, dry_run: bool) -> None:
    """Store a folder of files as one record file.

    The file is FFRecord: one record for each file, and a listing of their names. Hidden files and empty folders are
    packed, too. Links are followed. Modes and times are not stored. 'anyrecord unpack' is the reverse.
    """
    if dry_run:
        _show_plan(out, folder, target, reading, writing)
        return
    output = stdout(out) if is_stdout(target) else None
    size = 0
    with out.progress("packing") as step:

        def report(done: int, total: int) -> None:
            nonlocal size
            size = done
            if step is not None:
                step(done, total)

        keywords = {} if output is not None else reading.keywords
        anyrecord.pack(folder, output or target, progress=report, **keywords, **writing.keywords)
    files = len(planned(folder, None).paths) if output is not None else _count(target, reading)
    if out.as_json:
        out.write_json({"dry_run": False, "folder": folder, "path": redacted(target), "files": files, "bytes": size})
    elif output is None:
        out.line(f"packed {plural(files, 'file')}, {bytes_text(size)}, in {redacted(target)}")
    else:
        out.note(f"packed {plural(files, 'file')}, {bytes_text(size)}")


def _count(target: str, reading: Reading) -> int:
    with anyrecord.Folder(target, **reading.keywords) as packed:
        return len(packed)


def _show_plan(out: Output, folder: str, target: str, reading: Reading, writing: Writing) -> None:
    overwrite = writing.keywords.get("overwrite", False)
    found = planned(folder, None if is_stdout(target) else target, overwrite=overwrite, **reading.keywords)
    size = sum(found.sizes)
    if out.as_json:
        told = {"folder": folder, "path": redacted(target), "files": len(found.paths), "bytes": size}
        out.write_json({"dry_run": True, **told})
    else:
        files = plural(len(found.paths), "file")
        out.line(f"{files}, {bytes_text(size)}, would be packed in {redacted(target)}")
