"""Runs a command line from beginning to end: its errors, signals and warnings, and the exit code."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

import click
from click.shell_completion import shell_complete

import anyrecord
from anyrecord.cli import _errors
from anyrecord.cli._output import Output, OutputClosedError, may_colour
from anyrecord.cli._verbs import Verbs

__all__ = ["COMPLETE", "anyrecord_command", "run"]

COMPLETE = "_ANYRECORD_COMPLETE"
"""The variable by which the script of a shell asks for completions."""

FLAGS = ("--json", "-q", "--quiet", "--debug")

HELP = """Look into, check, convert and copy record files.

anyrecord reads and writes FFRecord, ArrayRecord, RecordIO and TFRecord files. A verb takes any number of files,
globs in quotes, name@16, 'file[0:1000]', and URLs.
"""

anyrecord_command = Verbs(
    "anyrecord",
    help=HELP,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=lambda ctx, _, value: _print_version(ctx) if value else None,
            help="Show the version and exit.",
        )
    ],
)


def _print_version(ctx: click.Context) -> None:
    out: Output = ctx.obj
    out.line(f"anyrecord {anyrecord.__version__}")
    ctx.exit()


class _Signalled(KeyboardInterrupt):
    """A signal that asks the process to end. Like Ctrl-C, it unwinds the stack, so that nothing half-made is left."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(args: Sequence[str], prog_name: str) -> int:
    """Runs a command line and returns the exit code."""
    given = args[: args.index("--")] if "--" in args else args
    out = Output(
        as_json="--json" in given,
        is_debug="--debug" in given or os.environ.get("ANYRECORD_DEBUG", "") not in ("", "0"),
    )
    with _signals(), _warnings(out):
        try:
            code = _invoke(_flags_behind_verb(args), prog_name, out)
            out.flush()
            return code
        except OutputClosedError:
            return _errors.OUTPUT_CLOSED
        except (KeyboardInterrupt, click.Abort) as error:
            return _interrupted(out, error.number if isinstance(error, _Signalled) else signal.SIGINT)
        except Exception as error:
            with suppress(OutputClosedError, OSError):  # what was written so far comes before the error
                out.flush()
            return out.fail(error)
        finally:
            _drop_output()


def _flags_behind_verb(args: Sequence[str]) -> list[str]:
    """Moves the flags that all verbs have behind the verb, so that `anyrecord --json info x` works, too.

    >>> _flags_behind_verb(["--json", "info", "x"]), _flags_behind_verb(["--json", "--help"])
    (['info', '--json', 'x'], ['--help'])
    """
    count = next((number for number, arg in enumerate(args) if arg not in FLAGS), len(args))
    flags, rest = list(args[:count]), list(args[count:])
    return [rest[0], *flags, *rest[1:]] if rest and not rest[0].startswith("-") else rest


def _invoke(args: Sequence[str], prog_name: str, out: Output) -> int:
    if instruction := os.environ.get(COMPLETE):
        return shell_complete(anyrecord_command, {}, prog_name, COMPLETE, instruction)
    colour = None if may_colour() else False
    try:
        # Not `main` of click, which has its own way to tell about Ctrl-C.
        with anyrecord_command.make_context(prog_name, list(args), obj=out, color=colour) as context:
            return int(anyrecord_command.invoke(context) or 0)
    except click.exceptions.Exit as ended:  # after --help
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:  # the help itself
        click.echo(error.format_message(), err=True, color=colour)
        return _errors.USAGE
    except click.ClickException as error:
        return _usage_error(error, out)


def _usage_error(error: click.ClickException, out: Output) -> int:
    text = error.format_message()
    text = text[:1].lower() + text[1:].rstrip(".")
    if out.as_json:
        out.fail_json("UsageError", text, _errors.USAGE)
        return _errors.USAGE
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx is not None else "anyrecord"
    out.fail_text(text, [f"'{path} --help' shows how to use it"])
    return _errors.USAGE


def _interrupted(out: Output, number: int) -> int:
    name = {signal.SIGINT: "interrupted"}.get(signal.Signals(number), f"ended by {signal.Signals(number).name}")
    if sys.stderr is not None and sys.stderr.isatty():
        print(file=sys.stderr)  # after the "^C" that the terminal shows
    if out.as_json:
        out.fail_json("Interrupted", name, _errors.INTERRUPTED + number)
    else:
        out.fail_text(name)
    return _errors.INTERRUPTED + number


@contextmanager
def _signals() -> Iterator[None]:
    """Lets a kill and a closed terminal unwind the stack. Signals that the parent had ignored stay ignored."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise _Signalled(number)

    before: dict[int, Any] = {}
    with suppress(ValueError):  # not in the main thread
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _warnings(out: Output) -> Iterator[None]:
    """Shows warnings as one line each."""

    def show(message: Warning | str, category: type[Warning], *_: object) -> None:
        out.warn(_errors.translated(str(message)), category.__name__)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)  # these are for programmers
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _drop_output() -> None:
    """Lets the interpreter not write at its exit what could not be written, which would print an error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError, AttributeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
