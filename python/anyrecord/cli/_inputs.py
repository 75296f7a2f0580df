"""What a verb reads: sources on the command line, `-` for standard input, and the options of reading."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, BinaryIO, NamedTuple, TypeVar

import click

import anyrecord
from anyrecord import _core
from anyrecord.cli._params import COUNT, PAIR, SIZE, SOURCE

__all__ = ["Reading", "reading_options", "source_argument", "source_of", "sources_argument"]

F = TypeVar("F", bound=Callable[..., Any])

SOURCES_HELP = (
    "A SOURCE is a file, a folder, a glob in quotes ('train-*.ffr'), name@16 (the 16 shards of name), "
    "'file[0:1000]' (some of its records), a URL, or - for standard input."
)
"""For the docstring of a verb, where it helps."""


def sources_argument(function: F) -> F:
    """Adds the parameter `sources`: one or more."""
    return click.argument("sources", metavar="SOURCE...", type=SOURCE, nargs=-1, required=True)(function)


def source_argument(function: F) -> F:
    """Adds the parameter `source`: exactly one."""
    return click.argument("source", metavar="SOURCE", type=SOURCE)(function)


def source_of(sources: str | Sequence[str]) -> Any:
    """What to pass to `anyrecord.open`: a name, a list of names, or standard input as a file object."""
    names = [sources] if isinstance(sources, str) else list(sources)
    if "-" in names:
        if len(names) > 1:
            raise ValueError("- is standard input, which cannot be read together with other sources")
        return stdin()
    if len(names) == 1 and _is_pipe(names[0]):
        with open(names[0], "rb") as file:
            return _Seekable(_copied(file), names[0])
    # A single URL can be a folder; in a list that would need a request for each.
    return names[0] if len(names) == 1 else names


class _Seekable:
    """A file object with a name of ours."""

    def __init__(self, file: BinaryIO, name: str = "<stdin>") -> None:
        self.name = name
        self.read, self.seek, self.tell, self.close = file.read, file.seek, file.tell, file.close
        self.readinto = getattr(file, "readinto", None)
        self.seekable, self.readable = (lambda: True), (lambda: True)


def stdin() -> Any:
    """Standard input. What cannot seek, such as a pipe, is first copied to a temporary file that has no name."""
    if sys.stdin is None:
        raise ValueError("- is standard input, which is closed")
    file = sys.stdin.buffer
    if file.isatty():
        raise ValueError("- is standard input, which is a terminal; pipe a record file into it")
    return _Seekable(file if file.seekable() else _copied(file))


def _copied(file: BinaryIO) -> BinaryIO:
    """A copy of what a pipe gives, in a temporary file that has no name."""
    import shutil
    import tempfile

    copy = tempfile.TemporaryFile()  # noqa: SIM115  # open until the process ends
    shutil.copyfileobj(file, copy, 1 << 20)
    copy.seek(0)
    return copy


def _is_pipe(name: str) -> bool:
    """Whether a name is a pipe, such as `<(zcat train.ffr.gz)` of a shell."""
    try:
        return stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False


# The options. Names are those of the keywords of `anyrecord.open`, so that messages can be translated.
_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "format": click.option(
        "--format",
        type=click.Choice(sorted(_core.formats())),
        metavar="NAME",
        help=f"The format, if the bytes do not tell: {', '.join(sorted(_core.formats()))}.",
    ),
    "checksums": click.option(
        "--checksums/--no-checksums", default=None, help="Check hashes. The default is to check."
    ),
    "table": click.option(
        "--table",
        type=click.Choice(["memory", "disk"]),
        metavar="PLACE",
        help="Where the table of chunks is kept: memory (the default) or disk.",
    ),
    "io": click.option(
        "--io",
        type=click.Choice(["auto", "plain", "map", "direct"]),
        metavar="WAY",
        help="How local files are read: auto (the default), plain, map or direct.",
    ),
    "limit": click.option(
        "--limit",
        type=PAIR,
        multiple=True,
        metavar="NAME=SIZE",
        help="Raise a limit, such as decoded_bytes=16GiB. Repeatable.",
    ),
    "threads": click.option("--threads", type=COUNT, metavar="N", help="How many threads decode."),
    "expected_records": click.option(
        "--expected-records", type=COUNT, metavar="N", help="Fail unless there are exactly N records."
    ),
    "on_error": click.option(
        "--on-error",
        type=click.Choice(["raise", "skip", "replace"]),
        metavar="WHAT",
        help="What to do with a damaged record: raise (stop, the default), skip or replace.",
    ),
    "max_errors": click.option(
        "--max-errors", type=COUNT, metavar="N", help="Stop after N damaged records, with --on-error."
    ),
    "storage": click.option(
        "--storage",
        type=PAIR,
        multiple=True,
        metavar="KEY=VALUE",
        help="An option of the store, such as skip_signature=true. Repeatable.",
    ),
    "cache": click.option(
        "--cache", type=click.Path(), metavar="FOLDER", help="Keep what is read from URLs in this folder."
    ),
    "cache_folder_bytes": click.option(
        "--cache-folder-bytes", type=SIZE, help="The most that this folder takes, such as 100GiB."
    ),
}


class Reading(NamedTuple):
    """The options of reading that were given."""

    keywords: dict[str, Any]
    """For `anyrecord.open`, or a function with the same keywords. An option that was not given is not in it."""

    def open(self, sources: str | Sequence[str]) -> anyrecord.Records:
        """Opens sources as `anyrecord.open` does."""
        return anyrecord.open(source_of(sources), **self.keywords)


def reading_options(*names: str) -> Callable[[F], F]:
    """Adds options of reading, by the names of keywords of `anyrecord.open`, and `limit` for `limits=`.

    The function gets them together, as the parameter `reading`.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **keywords: Any) -> Any:
            given = {name: keywords.pop(name) for name in names}
            return function(*args, reading=Reading(_keywords(given)), **keywords)

        for name in reversed(names):
            call = _OPTIONS[name](call)
        return call  # type: ignore[return-value]

    return decorate


def _keywords(given: Mapping[str, Any]) -> dict[str, Any]:
    keywords = {name: value for name, value in given.items() if value is not None and value != ()}
    if "storage" in keywords:
        keywords["storage"] = dict(keywords["storage"])
    if "limit" in keywords:
        keywords["limits"] = _limits(keywords.pop("limit"))
    if "cache" in keywords:
        keywords["cache"] = os.fspath(keywords["cache"])
    return keywords


def _limits(pairs: Sequence[tuple[str, str]]) -> anyrecord.Limits:
    names = anyrecord.Limits.__slots__
    for name, _ in pairs:
        if name not in names:
            raise click.BadParameter(
                f"{name!r} is not a limit; the limits are {', '.join(names)}", param_hint="--limit"
            )
    return anyrecord.Limits(**{name: SIZE.convert(value, None, None) for name, value in pairs})
