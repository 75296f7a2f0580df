"""Examples in docstrings become blocks of code. They are doctests without a fence, which Markdown takes for quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import Extension, Object

OPTIONS = re.compile(r" *# doctest: .*$", re.MULTILINE)
"""Words for the program that runs the examples. Readers need not see them."""


class FencedDoctests(Extension):  # type: ignore[misc]
    """Puts a fence around each example."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring and ">>>" in obj.docstring.value:
            obj.docstring.value = "\n".join(fenced(OPTIONS.sub("", obj.docstring.value).splitlines()))


def fenced(lines: list[str]) -> Iterator[str]:
    """The lines, with fences. An example ends with an empty line.

    >>> list(fenced(["text", "", ">>> 1 + 1", "2", "", "more"]))
    ['text', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'more']
    """
    is_example = False
    for line in lines:
        if not is_example and line.startswith(">>> "):
            is_example = True
            yield "```pycon"
        elif is_example and not line.strip():
            is_example = False
            yield "```"
        yield line
    if is_example:
        yield "```"
