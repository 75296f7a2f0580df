"""What a verb writes to: the target on the command line, `-` for standard output, and the options of writing."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click

import anyrecord
from anyrecord import _core
from anyrecord._shard_names import shard_paths
from anyrecord._writer import FormatOptions, writable_formats
from anyrecord.cli._output import Output
from anyrecord.cli._params import COUNT, COUNT_FROM_1, PAIR, SIZE, SOURCE

__all__ = [
    "Writing",
    "Written",
    "dry_run_option",
    "is_stdout",
    "source_format_option",
    "sources_and_target_arguments",
    "stdout",
    "target_argument",
    "target_names",
    "writing_options",
]

F = TypeVar("F", bound=Callable[..., Any])

WRITABLE = sorted(writable_formats())


def target_argument(function: F) -> F:
    """Adds the parameter `target`: where to write to."""
    return click.argument("target", metavar="TARGET", type=SOURCE)(function)


def sources_and_target_arguments(function: F) -> F:
    """Adds the parameters `sources`, one or more, and `target`."""

    @wraps(function)
    def call(*args: Any, names: tuple[str, ...], **keywords: Any) -> Any:
        if len(names) < 2:
            raise click.UsageError(f"missing argument 'TARGET': where to write to; {names[0]!r} is the only name")
        return function(*args, sources=names[:-1], target=names[-1], **keywords)

    argument = click.argument("names", metavar="SOURCE... TARGET", type=SOURCE, nargs=-1, required=True)
    return argument(call)  # type: ignore[return-value]


def dry_run_option(help: str) -> Callable[[F], F]:
    """Adds the flag `dry_run`."""
    return click.option("--dry-run", "-n", is_flag=True, help=help)


def source_format_option(function: F) -> F:
    """Adds the parameter `source_format`."""
    formats = sorted(_core.formats())
    return click.option(
        "--source-format",
        type=click.Choice(formats),
        metavar="NAME",
        help=f"The format of the sources, if the bytes do not tell: {', '.join(formats)}.",
    )(function)


_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "format": click.option(
        "--format",
        type=click.Choice(WRITABLE),
        metavar="NAME",
        help=f"The format to write, if the suffix of TARGET does not tell: {', '.join(WRITABLE)}.",
    ),
    "overwrite": click.option("--overwrite", is_flag=True, help="Replace what is there."),
    "durable": click.option(
        "--durable/--no-durable",
        default=None,
        help="Wait until the data is on disk. The default is to wait.",
    ),
    "shards": click.option("--shards", type=COUNT_FROM_1, metavar="N", help="Write N files of equal length."),
    "shard_bytes": click.option("--shard-bytes", type=SIZE, help="Begin a new file after this size, such as 1GiB."),
    "shard_records": click.option(
        "--shard-records", type=COUNT_FROM_1, metavar="N", help="Begin a new file after N records."
    ),
    "threads": click.option(
        "--threads", type=COUNT, metavar="N", help="How many threads encode. The default is all cores."
    ),
    "codec": click.option(
        "--codec",
        metavar="NAME",
        help="The compression. array_record: zstd, brotli, snappy, none. recordio: snappy, gzip, none. "
        "tfrecord: none, gzip, zlib.",
    ),
    "level": click.option("--level", type=int, metavar="N", help="The level of the compression."),
    "window_log": click.option(
        "--window-log", type=int, metavar="N", help="array_record: the window of zstd or brotli, as a power of two."
    ),
    "group_size": click.option(
        "--group-size", type=int, metavar="N", help="array_record: records in a chunk. The default is 1."
    ),
    "transpose": click.option(
        "--transpose/--no-transpose",
        default=None,
        help="array_record: store protocol buffers field by field.",
    ),
    "transpose_bucket_size": click.option(
        "--transpose-bucket-size", type=SIZE, help="array_record: the size of a bucket with --transpose."
    ),
    "pad_to_block_boundary": click.option(
        "--pad-to-block-boundary",
        is_flag=True,
        default=None,
        help="array_record: begin each chunk at a multiple of 64 KiB.",
    ),
    "chunk_bytes": click.option(
        "--chunk-bytes", type=SIZE, help="recordio: bytes of records in a chunk. The default is 32MiB."
    ),
    "target_storage": click.option(
        "--target-storage",
        type=PAIR,
        multiple=True,
        metavar="KEY=VALUE",
        help="An option of the store of TARGET. Repeatable.",
    ),
}

RECORDS = (
    *("format", "overwrite", "durable", "shards", "shard_bytes", "shard_records", "threads"),
    *("codec", "level", "window_log", "group_size", "transpose", "transpose_bucket_size", "pad_to_block_boundary"),
    *("chunk_bytes", "target_storage"),
)
"""The options of a verb that writes records."""


class Writing(NamedTuple):
    """The options of writing that were given."""

    keywords: dict[str, Any]
    """For `anyrecord.convert`, or a function with the same keywords. An option that was not given is not in it."""

    def check(self) -> None:
        """Raises what a writer would raise because of the options of its format."""
        options = {name: value for name, value in self.keywords.items() if name in FormatOptions.__annotations__}
        if (format := self.keywords.get("format")) is not None:
            anyrecord.create(io.BytesIO(), format=format, threads=0, **options).discard()


def writing_options(*names: str) -> Callable[[F], F]:
    """Adds options of writing, by the names of keywords of `anyrecord.convert`.

    The function gets them together, as the parameter `writing`.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **keywords: Any) -> Any:
            given = {name: keywords.pop(name) for name in names}
            chosen = {name: value for name, value in given.items() if value is not None and value != ()}
            if "target_storage" in chosen:
                chosen["target_storage"] = dict(chosen["target_storage"])
            return function(*args, writing=Writing(chosen), **keywords)

        for name in reversed(names):
            call = _OPTIONS[name](call)
        return call  # type: ignore[return-value]

    return decorate


def is_stdout(target: str) -> bool:
    """Whether a target is standard output."""
    return target == "-"


class Written:
    """Standard output as a file object that counts bytes. It never seeks: others may write to the same file."""

    name = "<stdout>"

    def __init__(self, out: Output) -> None:
        self._out, self.bytes, self.flush = out, 0, out.flush

    def write(self, data: bytes) -> int:
        self._out.write_bytes(data)
        self.bytes += len(data)
        return len(data)

    def seekable(self) -> bool:
        return False


def stdout(out: Output) -> Any:
    """Standard output, for records. Raises if that cannot be meant."""
    if out.as_json:
        raise ValueError("with --json, standard output is for JSON; pass the name of a file instead of -")
    if out.is_terminal:
        raise ValueError("- is standard output, which is a terminal; redirect it to a file or a pipe")
    if sys.stdout is None:
        raise ValueError("- is standard output, which is closed")
    return Written(out)


def target_names(name: str, writing: Writing) -> list[str]:
    """The files that become of one target: itself, or its shards. Empty if their number is not known yet."""
    if (shards := writing.keywords.get("shards")) is not None:
        return shard_paths(name, shards)
    is_open = {"shard_bytes", "shard_records"} & set(writing.keywords)
    return [] if is_open else [name]
