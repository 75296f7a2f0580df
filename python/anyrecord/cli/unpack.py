"""`anyrecord unpack`: writes the files of a packed folder to disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

import anyrecord
from anyrecord._folder import check_unpacking
from anyrecord._locations import redacted
from anyrecord.cli._inputs import Reading, reading_options, source_argument, source_of
from anyrecord.cli._output import Output
from anyrecord.cli._params import SOURCE
from anyrecord.cli._units import bytes_text, plural
from anyrecord.cli._verb import verb
from anyrecord.cli._writing import Writing, dry_run_option, writing_options

__all__ = ["command"]


@verb(
    "unpack",
    examples=[
        "anyrecord unpack pictures.ffr pictures/",
        "anyrecord unpack --dry-run pictures.ffr pictures/ | head",
        "anyrecord unpack s3://bucket/pictures.ffr pictures/ --overwrite",
    ],
)
@source_argument
@click.argument("folder", metavar="FOLDER", type=SOURCE)
@writing_options("overwrite")
@reading_options("storage")
@dry_run_option("List the files that would be written, and write nothing.")
def command(out: Output, source: str, folder: str, reading: Reading, writing: Writing, dry_run: bool) -> None:
    """Write the files of a packed folder to disk.

    FOLDER is created. If it exists and is not empty, --overwrite replaces the files that have the same names, and
    leaves the others. A pack from elsewhere is safe to unpack: nothing outside of FOLDER is written, and names that
    are not safe on every system are refused before anything is written.
    """
    overwrite = writing.keywords.get("overwrite", False)
    with anyrecord.Folder(source_of(source), **reading.keywords) as packed:
        if dry_run:
            check_unpacking(packed, folder, overwrite=overwrite)
        else:
            with out.progress("unpacking") as step:
                packed.unpack(folder, overwrite=overwrite, progress=step)
        _show(out, packed, source, folder, dry_run)


def _show(out: Output, packed: anyrecord.Folder, source: str, folder: str, dry_run: bool) -> None:
    names = list(packed)
    sizes: Sequence[int] = packed.records.sizes() or []
    size = sum(sizes[:-1])  # the last record is the listing
    if out.as_json:
        told: dict[str, Any] = {"dry_run": dry_run, "source": redacted(source), "folder": folder}
        told |= {"files": len(names), "bytes": size, "paths": names}
        out.write_json(told)
        return
    if not dry_run:
        out.line(f"unpacked {plural(len(names), 'file')}, {bytes_text(size)}, to {folder}")
        return
    for name in names:
        out.line(os.path.join(folder, name))
    out.note(f"{plural(len(names), 'file')}, {bytes_text(size)}, would be written")
