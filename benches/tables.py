"""Prints tables as text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def show(title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Prints a table. The names of the rows are left-aligned, everything else is right-aligned."""
    print(title)
    for line in lines(columns, rows):
        print("  " + line)
    print(flush=True)


def lines(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """The lines of a table. Each column is as wide as its longest cell."""
    cells = [["", *columns], *([name, *row] for name, row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns) + 1)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in cells
    ]


def markdown(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """The table as Markdown."""
    out = ["| " + " | ".join(["", *columns]) + " |", "|---|" + "---:|" * len(columns)]
    out += ["| " + " | ".join([name, *row]) + " |" for name, row in rows]
    return "\n".join(out)


def number(figure: float | None) -> str:
    """A figure with three significant digits. A dash if there is none.

    >>> number(0.1234), number(12.34), number(1234.5), number(None)
    ('0.123', '12.3', '1,234', '-')
    """
    if figure is None:
        return "-"
    digits = 3 if figure < 1 else 2 if figure < 10 else 1 if figure < 100 else 0
    return f"{figure:,.{digits}f}"
