"""How many minutes each part of `make test` took: `python tests/minutes.py FILE`.

The Makefile notes in the file when a part begins and ends, one line each: `1763450000 begin lint`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ALL = "everything"
"""The part that has all the others in it. Parts run at the same time, so it is not their sum."""


def minutes(lines: Iterable[str]) -> dict[str, float | None]:
    """The minutes of each part, in the order in which they began. None for one that did not end.

    >>> minutes(["0 begin lint", "90 end lint", "90 begin rust tests"])
    {'lint': 1.5, 'rust tests': None}
    >>> minutes(["0 begin setting up", "30 end setting up", "60 begin setting up", "150 end setting up"])
    {'setting up': 2.0}
    """
    found: dict[str, float | None] = {}
    begun: dict[str, int] = {}
    for line in lines:
        seconds, event, part = line.split(maxsplit=2)
        part = part.strip()
        if event == "begin":
            found.setdefault(part, 0.0)
            begun[part] = int(seconds)
        else:
            found[part] = (found[part] or 0.0) + (int(seconds) - begun.pop(part)) / 60
    return {part: None if part in begun else taken for part, taken in found.items()}


def table(found: dict[str, float | None]) -> Iterator[str]:
    """
    >>> print(*table({"everything": 2.5, "lint": 1.25, "rust tests": None}), sep="\\n")
    minutes  part of `make test`
        1.2  lint
          -  rust tests (failed)
        2.5  everything
    """
    yield "minutes  part of `make test`"
    last = {ALL: found[ALL]} if ALL in found else {}
    for part, taken in {**{part: found[part] for part in found if part != ALL}, **last}.items():
        yield f"{'-' if taken is None else f'{taken:.1f}':>7}  {part}{' (failed)' if taken is None else ''}"


if __name__ == "__main__":
    print(*table(minutes(Path(sys.argv[1]).read_text().splitlines())), sep="\n")
