"""Types of values on the command line: sources, sizes, pairs, numbers of records."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import click
from click.shell_completion import CompletionItem

__all__ = ["COUNT", "COUNT_FROM_1", "PAIR", "RANGES", "SIZE", "SOURCE", "Range"]

Range: TypeAlias = int | slice
"""The number of a record, or a range of numbers. Negative numbers count from the end."""

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{rest}": 1024**power if rest != "b" else 1000**power
    for power, letter in enumerate("kmgtp", 1)
    for rest in ("", "b", "ib")
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
_NUMBER = re.compile(r"-?[0-9]+")
_RANGE = re.compile(r"(-?[0-9]+)?:(-?[0-9]+)?(?::(-?[0-9]+)?)?")


class _Source(click.ParamType):  # type: ignore[type-arg]  # it has no parameter in older versions
    """A path, pattern or URL. Shells complete file names."""

    name = "source"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("the name of a file is empty", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class _Count(click.ParamType):  # type: ignore[type-arg]  # it has no parameter in older versions
    """A whole number from 0 or 1. Unlike `click.IntRange`, it does not add its range to the help."""

    name = "n"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"[0-9]+", value) or int(value) < self._least:
            self.fail(f"{value!r} is not a whole number from {self._least}", param, ctx)
        return int(value)


class _Size(click.ParamType):  # type: ignore[type-arg]  # it has no parameter in older versions
    """A number of bytes, such as 4096, 64MiB or 1G. MB is 1,000,000; M and MiB are 1,048,576."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value.strip())
        if found is None or found[2].lower() not in _UNITS:
            self.fail(f"{value!r} is not a size; write for example 4096, 64MiB or 1G", param, ctx)
        unit = _UNITS[found[2].lower()]
        return int(found[1]) * unit if found[1].isdigit() else int(float(found[1]) * unit)


class _Pair(click.ParamType):  # type: ignore[type-arg]  # it has no parameter in older versions
    """KEY=VALUE."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, rest = value.partition("=")
        if not equals or not key:
            # Not the value itself: it may be a secret.
            self.fail("expected KEY=VALUE, such as region=eu-west-1", param, ctx)
        return key, rest


class _Ranges(click.ParamType):  # type: ignore[type-arg]  # it has no parameter in older versions
    """Numbers of records: 7, 10:20, -5:, ::100, or several with commas between them."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Range, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self._one(part.strip(), param, ctx) for part in value.split(","))

    def _one(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Range:
        if _NUMBER.fullmatch(text):
            return int(text)
        found = _RANGE.fullmatch(text)
        if found is None:
            self.fail(f"{text!r} is not a number or a range; write for example 7, 10:20, -5: or 0:1000:10", param, ctx)
        start, stop, step = found.groups()
        if step is not None and int(step) == 0:
            self.fail(f"the step of {text!r} is 0", param, ctx)
        return slice(*(None if part is None else int(part) for part in (start, stop, step)))


SOURCE = _Source()
COUNT = _Count()
COUNT_FROM_1 = _Count(1)
SIZE = _Size()
PAIR = _Pair()
RANGES = _Ranges()
