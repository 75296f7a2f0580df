"""All verbs, in the order of the help, with one line about each.

The lines are here so that `anyrecord --help` imports no verb. A test compares them with the help of each verb.
"""

from __future__ import annotations

from importlib import import_module

import click

from anyrecord.cli._verb import Heading

__all__ = ["VERBS", "Verbs"]

VERBS = {
    "info": "Show format, number of records, sizes and compression.",
    "ls": "List files, names or records.",
    "head": "Show what the first records are.",
    "cat": "Write records to standard output.",
    "get": "Write some records to standard output or to files.",
    "verify": "Read every byte, check every hash, and report damage.",
    "salvage": "Save every record that can still be read from damaged files.",
    "recover": "Clean up after writers that were killed.",
    "convert": "Convert record files to another format, or to shards.",
    "copy": "Copy whole files, between disks and object stores.",
    "pack": "Store a folder of files as one record file.",
    "unpack": "Write the files of a packed folder to disk.",
    "index": "Write index files, so that files without a table open fast.",
    "bench": "Measure how fast your own files are read here.",
    "doctor": "Show versions, features, and what is slow here and why.",
    "completion": "Print the script that completes commands in your shell.",
}
"""Each name is also the name of a module here, which has a `command`."""


class Verbs(Heading, click.Group):
    """The command `anyrecord`: finds a verb by its name, and imports only that one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = import_module(f"anyrecord.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, VERBS)
            hint = f"did you mean {near[0]!r}?" if near else f"the verbs are {', '.join(VERBS)}"
            raise click.UsageError(f"there is no verb {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text("'anyrecord VERB --help' explains a verb and shows examples.")
