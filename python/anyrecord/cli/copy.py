"""`anyrecord copy`: whole files, byte by byte, from any place to any other."""

from __future__ import annotations

import click

import anyrecord
from anyrecord.cli import _plan
from anyrecord.cli._inputs import Reading, reading_options
from anyrecord.cli._output import Output
from anyrecord.cli._units import bytes_text, plural
from anyrecord.cli._verb import verb
from anyrecord.cli._writing import Writing, dry_run_option, sources_and_target_arguments, writing_options

__all__ = ["command"]


@verb(
    "copy",
    examples=[
        "anyrecord copy 'train-*.ffr' s3://bucket/data/",
        "anyrecord copy s3://bucket/train.ffr@16 data/ --storage region=eu-west-1",
        "anyrecord copy one.ffr two.ffr train.ffr@2",
    ],
)
@sources_and_target_arguments
@writing_options("overwrite", "durable", "target_storage")
@click.option(
    "--verify/--no-verify", default=True, help="Compare the copies with the sources. The default is to compare."
)
@reading_options("storage")
@dry_run_option("Show what would be copied, and copy nothing.")
def command(
    out: Output,
    sources: tuple[str, ...],
    target: str,
    reading: Reading,
    writing: Writing,
    verify: bool,
    dry_run: bool,
) -> None:
    """Copy whole files, between disks and object stores.

    If TARGET is a folder, or ends in a slash, the files keep their names. TARGET can be a file name for one source, and
    name@16 for 16 sources, which become the shards of that name. The bytes are copied as they are, damaged or not.

    All files appear together. If a copy is interrupted, the same command continues it: files that were complete are
    not copied again. 'anyrecord recover TARGET' removes what waits to be continued.
    """
    if "-" in (*sources, target):
        raise ValueError("copy needs names of files, so that it can continue; - is not possible here")
    source = sources[0] if len(sources) == 1 else list(sources)
    if dry_run:
        keywords = {name: value for name, value in writing.keywords.items() if name != "durable"}
        made = _plan.copies(source, target, reading.keywords, Writing(keywords))
        if out.as_json:
            out.write_json({"dry_run": True, "files": [one.as_json() for one in made]})
            return
        size = bytes_text(sum(one.source_bytes for one in made))
        _plan.show(out, made, f"{plural(len(made), 'file')}, {size}, would be copied")
        return
    try:
        with out.progress("copying") as step:
            done = anyrecord.copy(source, target, progress=step, verify=verify, **reading.keywords, **writing.keywords)
    except BaseException as error:
        if not isinstance(error, Exception):  # Ctrl-C; other errors are shown with their notes
            for note in getattr(error, "__notes__", ()):
                out.note(note.replace("the same call", "the same command"))
        raise
    if out.as_json:
        names = ("files", "bytes", "continued")
        out.write_json(
            {
                "dry_run": False,
                **{name: getattr(done, name) for name in names},
                "paths": [*done.paths],
                "verified": verify,
            }
        )
        return
    before = f"; {plural(done.continued, 'file')} had been copied before" if done.continued else ""
    size = bytes_text(done.bytes)
    if done.files == 1:
        out.paragraph("copied ", f"1 file, {size}, to {done.paths[0]}{before}")
    else:
        out.paragraph("copied ", f"{plural(done.files, 'file')}, {size}: {done.paths[0]} to {done.paths[-1]}{before}")
