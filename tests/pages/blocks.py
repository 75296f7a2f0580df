"""Finds the code blocks of a Markdown page."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

RUN = {"console", "python", "sh"}
"""Languages that are run."""

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<language>[\w+-]*)(?P<rest>.*)$")
HIDDEN = re.compile(r"^<!-- run:(?P<code>.*?)-->\s*$", re.DOTALL)
NOT_RUN = re.compile(r"^ *<!-- not run: (?P<reason>.+?) -->\s*$")


@dataclass(frozen=True)
class Block:
    """One block of code."""

    language: str
    """`python`, `console`, `sh`, ..., or `hidden` for Python code in a comment."""
    code: str
    line: int
    """The line of the page that its first line of code is on, from 1."""
    reason: str | None = None
    """Why it is not run."""

    @property
    def is_doctest(self) -> bool:
        return self.language == "python" and bool(re.search(r"^\s*>>> ", self.code, re.MULTILINE))


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page, in order.

    >>> [(block.language, block.line) for block in blocks("text\\n```python\\n1 + 1\\n```\\n")]
    [('python', 3)]
    """
    lines = page.splitlines()
    at, reason = 0, None
    while at < len(lines):
        line = lines[at]
        at += 1
        if fence := FENCE.match(line):
            begin = at
            end = re.compile(rf" *{re.escape(fence['fence'][0])}{{{len(fence['fence'])},}} *$")
            while at < len(lines) and not end.match(lines[at]):
                at += 1
            if at == len(lines):
                raise ValueError(f"the block of line {begin} has no end")
            code = textwrap.dedent("\n".join(lines[begin:at]) + "\n")
            at += 1
            yield Block(fence["language"], code, begin + 1, reason)
            reason = None
        elif mark := NOT_RUN.match(line):
            reason = mark["reason"]
        elif line.startswith("<!-- run:"):
            begin = at
            while "-->" not in lines[at - 1]:
                at += 1
            hidden = HIDDEN.match("\n".join(lines[begin - 1 : at]))
            if hidden is None:
                raise ValueError(f"the comment of line {begin} has text after its end")
            yield Block("hidden", textwrap.dedent(hidden["code"].lstrip(" ")), begin)
        elif line.strip() and reason is not None:
            raise ValueError(f"line {at} is between the mark 'not run' and a block")
