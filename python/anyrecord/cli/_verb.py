"""What makes a function a verb: its help with examples, and the options that all verbs have.

    @verb("info", examples=["anyrecord info train.array_record"])
    @sources_argument
    @reading_options("format", "limit", "storage")
    def command(out: Output, sources: tuple[str, ...], reading: Reading) -> int | None:
        \"\"\"Show format, sizes and counts.\"\"\"

The function gets an `Output` as `out`, and its own parameters by name. It returns an exit code, or None if all is well.
The first sentence of its docstring is the line in the list of verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from anyrecord.cli._output import Output

__all__ = ["Heading", "Verb", "verb"]


class _Formatter(click.HelpFormatter):
    """Headings are bold. click takes the colours away where there is no terminal."""

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{click.style(f'{heading}:', bold=True)}\n")


class _Context(click.Context):
    formatter_class = _Formatter


class Heading(click.Command):
    """A command whose help has bold headings."""

    context_class = _Context
    _own_help_option: click.Option | None = None

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The help goes through `Output` like everything else, so that a closed pipe is no error."""
        if self._own_help_option is None:
            self._own_help_option = click.Option(
                ["-h", "--help"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_help,
                help="Show this message and exit.",
            )
        return self._own_help_option


def _show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.obj.write_help(ctx.get_help())
        ctx.exit()


class Verb(Heading):
    """A verb of `anyrecord`."""

    def __init__(self, *args: Any, examples: Sequence[str], **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.examples = examples
        self.params += _common()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for example in self.examples for line in example.splitlines()))

    def invoke(self, ctx: click.Context) -> Any:
        out: Output = ctx.obj
        out.set_options(**{name: ctx.params.pop(name) for name in ("as_json", "is_quiet", "is_debug")})
        return ctx.invoke(self.callback, out, **ctx.params) if self.callback is not None else None


def verb(
    name: str, *, examples: Sequence[str], takes_negative: bool = False
) -> Callable[[Callable[..., int | None]], Verb]:
    """Makes a function a verb. `examples` are command lines for its help, at least one.

    `takes_negative`: an argument may begin with a minus sign. The verb itself refuses options that it does not know.
    """
    settings = {"max_content_width": 80, "ignore_unknown_options": takes_negative}

    def decorate(function: Callable[..., int | None]) -> Verb:
        made = click.command(name, cls=Verb, examples=examples, context_settings=settings)(function)
        assert isinstance(made, Verb)
        return made

    return decorate


def _common() -> list[click.Parameter]:
    return [
        click.Option(["--json", "as_json"], is_flag=True, help="Write JSON. Errors are JSON, too."),
        click.Option(["-q", "--quiet", "is_quiet"], is_flag=True, help="Show no progress and no warnings."),
        click.Option(["--debug", "is_debug"], is_flag=True, help="Show the traceback of an error."),
    ]
