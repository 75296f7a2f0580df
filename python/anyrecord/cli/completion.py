"""`anyrecord completion`: completes commands in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from anyrecord.cli._output import Output
from anyrecord.cli._verb import verb

__all__ = ["command"]


@verb(
    "completion",
    examples=[
        'eval "$(anyrecord completion bash)"                    # in ~/.bashrc',
        'eval "$(anyrecord completion zsh)"                     # in ~/.zshrc',
        "anyrecord completion fish > ~/.config/fish/completions/anyrecord.fish",
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(out: Output, shell: str) -> None:
    """Print the script that completes commands in your shell.

    The script completes verbs, options, their values and file names.
    """
    from anyrecord.cli._run import COMPLETE, anyrecord_command

    complete = get_completion_class(shell)
    assert complete is not None
    script = complete(anyrecord_command, {}, "anyrecord", COMPLETE).source()
    if out.as_json:
        out.write_json({"shell": shell, "script": script})
    else:
        out.write_text(script)
