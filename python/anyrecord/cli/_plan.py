"""What a verb would write, for `--dry-run`. It raises what the verb would raise before its first record."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from anyrecord._copy import planned as planned_copies
from anyrecord._copying import Target, is_folder_target, plan
from anyrecord._locations import is_url, shown
from anyrecord._options import open_options
from anyrecord._paths import expand, size_of, with_sizes
from anyrecord._shard_names import existing_shards
from anyrecord._targets import destination
from anyrecord._writer import Creating, format_of, sharding_of
from anyrecord.cli._output import Column, Output
from anyrecord.cli._units import bytes_text, plural
from anyrecord.cli._writing import Writing, target_names

__all__ = ["Planned", "copies", "records", "show"]

SHOWN = 20
"""So many files are listed for people."""


class Planned(NamedTuple):
    """One target, which gets the bytes or records of some sources."""

    sources: list[str]
    source_bytes: int
    paths: list[str]
    """The files that are written. Empty if their number is not known yet."""
    name: str
    """The target as it was given, or one file of a folder."""
    replaces: int
    """How many local files are replaced."""

    def as_json(self) -> dict[str, Any]:
        return {
            "sources": self.sources,
            "source_bytes": self.source_bytes,
            "target": self.name,
            "paths": self.paths or None,
            "replaces": self.replaces,
        }


def records(
    sources: Any, target: str, reading: dict[str, Any], writing: Writing, *, keep_sources: bool = False
) -> tuple[str, list[Planned]]:
    """The format and the files that `convert`, or `salvage`, would write."""
    given = writing.keywords
    options = open_options(**reading)
    to = destination(target, given.get("target_storage"))
    files = with_sizes(expand(sources, options), options)
    sharding = sharding_of(given.get("shards"), given.get("shard_bytes"), given.get("shard_records"))
    into_folder = is_folder_target(to.name, given.get("format"), sharding)
    creating = Creating(
        format=given.get("format") or format_of(to.name),
        overwrite=given.get("overwrite", False),
        durable=False,
        threads=0,
        sharding=sharding,
        num_records=None,
        storage=to.storage,
        in_set=into_folder,
    )
    Writing({**given, "format": creating.format}).check()
    targets = plan(files, to.name, creating, given, into_folder=into_folder, keep_sources=keep_sources, is_trial=True)
    return creating.format, [_planned(target, writing) for target in targets]


def copies(sources: Any, target: str, reading: dict[str, Any], writing: Writing) -> list[Planned]:
    """The files that `copy` would write."""
    return [_planned(made, Writing({})) for made in planned_copies(sources, target, **reading, **writing.keywords)]


def _planned(target: Target, writing: Writing) -> Planned:
    names = target_names(target.path, writing)
    if is_url(target.path):
        replaced = 0
    elif names == [target.path]:
        replaced = int(os.path.lexists(target.path))
    else:
        replaced = len(existing_shards(target.path))
    return Planned(
        sources=[shown(file.path) for file in target.files],
        source_bytes=sum(size_of(file) for file in target.files),
        paths=[shown(name) for name in names],
        name=shown(target.path),
        replaces=replaced,
    )


def show(out: Output, made: Sequence[Planned], what: str) -> None:
    """Tells people what would be done."""
    rows = []
    for one in made[:SHOWN]:
        sources = one.sources[0] if len(one.sources) == 1 else plural(len(one.sources), "file")
        targets = one.name if len(one.paths) == 1 else f"{one.name}, {_shards(one)}"
        rows.append([sources, bytes_text(one.source_bytes), targets, "replaced" if one.replaces else "new"])
    out.table([Column("from"), Column("size", right=True), Column("to"), Column("")], rows)
    if len(made) > SHOWN:
        out.line((f"and {plural(len(made) - SHOWN, 'more file')}", "dim"))
    out.paragraph((f"{what}; nothing was written, because of --dry-run", "bold"), "")


def _shards(one: Planned) -> str:
    return plural(len(one.paths), "shard") if one.paths else "as many shards as needed"
