"""How records are written to standard output one after the other: what is between them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from anyrecord.cli._output import Output
from anyrecord.cli._progress import Step

__all__ = ["delivery_options", "write_records"]

F = TypeVar("F", bound=Callable[..., Any])


def delivery_options(function: F) -> F:
    """Adds the parameter `between`: what is written with each record. None: nothing in a pipe."""
    prefixed = click.option(
        "--length-prefixed",
        "between",
        flag_value="length",
        help="Write the size before each record: 8 bytes, little-endian.",
    )
    null = click.option("-0", "--null", "between", flag_value="null", help="Write a zero byte after each record.")
    newline = click.option("--newline", "between", flag_value="newline", help="Write a newline after each record.")
    return newline(null(prefixed(function)))


def write_records(
    out: Output, records: Iterable[tuple[int, bytes]], between: str | None, step: Step | None = None, total: int = 0
) -> None:
    """Writes records, each with its number, as the options say."""
    end = {"newline": b"\n", "null": b"\0"}.get(between or "", b"")
    unreported = 0
    for done, (number, record) in enumerate(records, 1):
        if out.as_json:
            data = base64.b64encode(record).decode()
            out.write_json({"record": number, "size": len(record), "data": data})
        else:
            if between == "length":
                out.write_bytes(len(record).to_bytes(8, "little"))
            # Records on a terminal begin on lines of their own.
            is_open_line = out.is_terminal and between is None and not record.endswith(b"\n")
            out.write_bytes(record)
            if end or is_open_line:
                out.write_bytes(end or b"\n")
        unreported += len(record) + 4096
        if step is not None and unreported > 1 << 20:
            step(done, total)
            unreported = 0
