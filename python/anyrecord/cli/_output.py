"""What a verb writes. Everything goes through `Output`, so that nothing from a file reaches a terminal raw.

Results go to standard output. Progress, warnings and errors go to standard error.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

from anyrecord.cli import _errors

if TYPE_CHECKING:
    from anyrecord.cli._progress import Step

__all__ = ["Column", "Output", "OutputClosedError", "Part", "clean"]

Part: TypeAlias = str | tuple[str, str]
"""A piece of a line: a text, or a text and its style, such as `("3 problems", "bold red")`."""


class OutputClosedError(Exception):
    """Whoever read standard output has closed it. That is not an error: `anyrecord cat x | head` does it."""


class Column(NamedTuple):
    """A column of a table."""

    title: str
    right: bool = False
    """Numbers are at the right."""
    style: str = ""
    is_cut: bool = False
    """On a narrow terminal, long texts are cut. By default they are folded into several lines."""


def clean(text: str, keep: str = "") -> str:
    r"""The text with each character that is not printable as an escape, for people to read. `keep` stays as it is.

    >>> print(clean("a\x1b[31m\n\u202eb\udcff é 猫"))
    a\x1b[31m\n\u202eb\xff é 猫
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escape(char) for char in text)


def _escape(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte of a file name that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


class Output:
    """Standard output and standard error of one command. `is_terminal` is about standard output."""

    def __init__(self, *, as_json: bool = False, is_debug: bool = False) -> None:
        self.as_json, self.is_quiet, self.is_debug = as_json, False, is_debug
        self.is_terminal = _is_terminal(sys.stdout)
        self.has_colour = self.is_terminal and may_colour()
        self._bar: Step | None = None

    def set_options(self, *, as_json: bool, is_quiet: bool, is_debug: bool) -> None:
        """Takes over the options that all verbs have."""
        self.as_json, self.is_quiet, self.is_debug = as_json, is_quiet, is_debug or self.is_debug

    @property
    def width(self) -> int | None:
        """The columns of the terminal. None if there is no terminal: lines are as long as they need to be."""
        if not self.is_terminal:
            return None
        import shutil

        return max(shutil.get_terminal_size().columns, 20)

    # -- results, on standard output --

    def line(self, *parts: Part) -> None:
        """Writes one line. Control characters in it are escaped."""
        self._write_text("".join(self._styled(part) for part in parts) + "\n")

    def write_text(self, text: str) -> None:
        """Writes text of several lines. Other control characters than newlines and tabs are escaped."""
        self._write_text(clean(text, keep="\n\t"))

    def write_help(self, text: str) -> None:
        """Writes the help, which has its own styles."""
        import click

        self._write_text(f"{text if self.has_colour else click.unstyle(text)}\n")

    def write_json(self, value: Any) -> None:
        """Writes a value as one line of JSON."""
        self._write_text(json.dumps(value, allow_nan=False) + "\n")

    def write_bytes(self, data: bytes | memoryview) -> None:
        """Writes bytes as they are. On a terminal they are shown as text, with control characters escaped."""
        if self.is_terminal:
            self._write_text(clean(bytes(data).decode(errors="surrogateescape"), keep="\n\t"))
        else:
            self._write(data)

    def fields(self, pairs: Iterable[tuple[str, Part]], indent: int = 0) -> None:
        """Writes names and values, the values below each other. On a terminal, long values are wrapped."""
        found = list(pairs)
        width = max((len(name) for name, _ in found), default=0)
        for name, value in found:
            text, style = (value, "") if isinstance(value, str) else value
            first, *more = self._wrapped(text, indent + width + 2)
            self.line(" " * indent, (f"{name:<{width}}", "dim"), "  ", (first, style))
            for line in more:
                self.line(" " * (indent + width + 2), (line, style))

    def paragraph(self, head: Part, text: str, indent: int = 0) -> None:
        """Writes text after a short head. On a terminal it is wrapped."""
        name = head if isinstance(head, str) else head[0]
        first, *more = self._wrapped(name + text, indent)
        cut = min(len(name), len(first))
        self.line(" " * indent, (first[:cut], head[1] if isinstance(head, tuple) else ""), first[cut:])
        for line in more:
            self.line(" " * indent, line)

    def _wrapped(self, text: str, left: int) -> list[str]:
        """The lines of a text beside `left` columns of something else."""
        text = clean(text)
        if self.width is None or len(text) < self.width - left:
            return [text]
        import textwrap

        wide = max(self.width - left - 1, 20)
        return textwrap.wrap(text, wide, break_on_hyphens=False) or [""]

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Part]], *, has_titles: bool = True) -> None:
        """Writes a table. It fits the terminal; in a pipe each row is one line, however long."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=has_titles, header_style="bold", padding=(0, 2, 0, 0))
        for column in columns:
            table.add_column(
                column.title,
                justify="right" if column.right else "left",
                style=column.style,
                overflow="ellipsis" if column.is_cut else "fold",
                no_wrap=column.is_cut or column.right,
            )
        for row in rows:
            cells = [(cell, "") if isinstance(cell, str) else cell for cell in row]
            table.add_row(*(Text(clean(text), style) for text, style in cells))
        console = Console(
            width=self.width or 1 << 20,
            color_system="standard" if self.has_colour else None,
            force_terminal=self.has_colour,
            force_jupyter=False,
            legacy_windows=False,
            file=open(os.devnull, "w"),  # noqa: SIM115  # never written to: the text is captured
        )
        with console.file, console.capture() as captured:
            console.print(table)
        self._write_text("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))

    def flush(self) -> None:
        """Writes out what is buffered, so that a full disk is an error before the command ends."""
        if sys.stdout is not None:
            self._guard(sys.stdout.flush)

    # -- beside the results, on standard error --

    def note(self, text: str) -> None:
        """Tells the user something that is not a result. Not with `--quiet` or `--json`."""
        if not self.is_quiet and not self.as_json:
            self._to_stderr(*_stderr_wrapped("", clean(text)))

    def warn(self, text: str, kind: str = "Warning") -> None:
        """Writes a warning. Not with `--quiet`."""
        if self.is_quiet:
            return
        if self.as_json:
            self._to_stderr(json.dumps({"warning": {"type": kind, "message": text}}))
        else:
            self._tell("warning:", "yellow", text)

    def fail(self, error: BaseException) -> int:
        """Tells the user about an error, and returns the exit code."""
        if self.is_debug:
            import traceback

            self._to_stderr(clean("".join(traceback.format_exception(error)).rstrip("\n"), keep="\n"))
        if self.as_json:
            self._to_stderr(json.dumps({"error": _errors.described(error)}))
        else:
            self.fail_text(_errors.message(error), _errors.notes(error))
        return _errors.exit_code(error)

    def fail_text(self, text: str, hints: Sequence[str] = ()) -> None:
        """Writes an error message and hints."""
        self._tell("error:", "bold red", text)
        for hint in hints:
            self._tell("hint:", "cyan", hint)

    def fail_json(self, kind: str, text: str, code: int) -> None:
        """Writes an error that is no exception of the library, with `--json`."""
        nothing = dict.fromkeys(("path", "offset", "record", "expected", "found"))
        error: dict[str, Any] = {"type": kind, "message": text, "exit_code": code, **nothing, "hints": []}
        self._to_stderr(json.dumps({"error": error}))

    @contextmanager
    def progress(self, label: str, *, unit: str = "bytes") -> Iterator[Step | None]:
        """A progress bar with rate and time left. Within `with`, it is a function of `(done, total)`.

        Lines that are written meanwhile appear above it. It is None where no bar is shown: if standard error is not a
        terminal, and with `--quiet` or `--json`. `unit` is what is counted: "bytes", "records" or "files".
        """
        from anyrecord.cli._progress import progress_bar

        shown = _is_terminal(sys.stderr) and not self.is_quiet and not self.as_json
        with progress_bar(clean(label), unit, shown) as self._bar:
            try:
                yield self._bar
            finally:
                self._bar = None

    # -- below --

    def _styled(self, part: Part) -> str:
        text, style = (part, "") if isinstance(part, str) else part
        return _style(clean(text), style) if style and self.has_colour else clean(text)

    def _write_text(self, text: str) -> None:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        with self._bar.paused() if self.is_terminal and self._bar is not None else nullcontext():
            self._write(text.encode(encoding, "backslashreplace"))
            if self.is_terminal:
                self.flush()

    def _write(self, data: bytes | memoryview) -> None:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "standard output is closed")
        self._guard(lambda: sys.stdout.buffer.write(data))

    def _guard(self, act: Any) -> None:
        try:
            act()
        except BrokenPipeError:
            raise OutputClosedError from None
        except OSError as error:
            if os.name == "nt" and error.errno == errno.EINVAL:  # how Windows says that a pipe is closed
                raise OutputClosedError from None
            raise OSError(error.errno, f"cannot write to standard output: {error.strerror}") from error

    def _tell(self, head: str, style: str, text: str) -> None:
        first, *more = _stderr_wrapped(f"{head} ", clean(text))
        self._to_stderr(_stderr_styled(head, style) + first[len(head) :], *more)

    def _to_stderr(self, *lines: str) -> None:
        if sys.stderr is None:
            return
        with suppress(OSError, ValueError):  # there is nobody left to tell
            sys.stderr.write("".join(f"{line}\n" for line in lines))
            sys.stderr.flush()


def _is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _stderr_wrapped(head: str, text: str) -> list[str]:
    """The lines of a message. On a terminal they break between words."""
    if not _is_terminal(sys.stderr):
        return [head + text]
    import shutil
    import textwrap

    width = max(shutil.get_terminal_size().columns - 1, 20)
    return textwrap.wrap(
        head + text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ) or [head]


def may_colour() -> bool:
    """Whether the user wants colours on a terminal."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _style(text: str, style: str) -> str:
    import click

    words = style.split()
    flags = {word: True for word in words if word in ("bold", "dim", "underline")}
    colour = next((word for word in words if word not in flags), None)
    return click.style(text, fg=colour, **flags)


def _stderr_styled(text: str, style: str) -> str:
    return _style(text, style) if _is_terminal(sys.stderr) and may_colour() else text
