"""The command `anyrecord`. `docs/cli.md` describes it.

Each verb is one file with a `command`, and is listed in `_verbs.py`. Only the module of the verb that runs is imported.
What verbs share:

| file | what it does |
|---|---|
| `_run.py` | runs a command line from beginning to end: errors, signals, exit codes |
| `_verb.py` | the decorator of a verb, with the options that all verbs have; help with examples |
| `_inputs.py` | sources, `-`, and the options of reading |
| `_params.py` | types of values: sizes, pairs, ranges of records |
| `_output.py` | lines, tables, JSON and bytes for standard output; nothing reaches a terminal raw |
| `_progress.py` | the progress bar |
| `_errors.py` | exit codes, and how an exception is told |
| `_writing.py` | targets, `-` for standard output, and the options of writing |
| `_plan.py` | what `--dry-run` shows |
| `_reports.py` | how verbs tell what they have written |
| `_contenders.py`, `_timing.py`, `_page_cache.py` | of `bench`: who is measured, how, and cold files |
| `_units.py` | numbers and sizes as text |
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]

MISSING_EXTRA = 4
"""The exit code if click or rich is not installed."""


def main(args: Sequence[str] | None = None, *, prog_name: str = "anyrecord") -> int:
    """Runs a command line, by default that of the process, and returns the exit code."""
    given = list(sys.argv[1:] if args is None else args)
    try:
        try:
            import click  # noqa: F401
            import rich  # noqa: F401
        except ImportError:
            return _refuse(given)
        from anyrecord.cli._run import run

        return run(given, prog_name)
    except KeyboardInterrupt:  # before or after `run`, which has its own way
        return 130


def _refuse(args: Sequence[str]) -> int:
    text = "the command line needs two more packages; install them with: pip install 'anyrecord[cli]'"
    if "--json" in args:
        import json

        error = {"type": "MissingExtra", "message": text, "exit_code": MISSING_EXTRA}
        print(json.dumps({"error": error}), file=sys.stderr)
    else:
        print(f"anyrecord: {text}", file=sys.stderr)
    return MISSING_EXTRA
