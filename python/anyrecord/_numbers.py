"""Whole numbers as arguments: one check and one message for every function of the package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, SupportsIndex

__all__ = [
    "MOST_COUNT",
    "MOST_NUMBER",
    "MOST_THREADS",
    "integer",
    "optional_number",
    "shown",
    "state_numbers",
    "whole_number",
]

MOST_THREADS = 1024
"""The largest number of threads."""
MOST_COUNT = 2**63 - 1
"""The largest signed 64-bit number, for sizes and counts."""
MOST_NUMBER = 2**64 - 1
"""The largest unsigned 64-bit number, for seeds and epochs."""


def whole_number(name: str, value: SupportsIndex, least: int = 0, most: int | None = MOST_NUMBER) -> int:
    """Returns the argument `name` as an `int`, or raises if it is not a whole number from `least` to `most`.

    Everything with `__index__` is accepted, including numpy integers, except a bool. `most=None` means no upper limit.

    >>> whole_number("threads", 4, 0, MOST_THREADS)
    4
    >>> whole_number("threads", -1, 0, MOST_THREADS)
    Traceback (most recent call last):
    ValueError: threads=-1 is not valid: it must be a whole number from 0 to 1024
    >>> whole_number("threads", "4", 0, MOST_THREADS)
    Traceback (most recent call last):
    TypeError: threads='4' is not valid: it must be a whole number from 0 to 1024, not str
    """
    try:
        number = value if type(value) is int else _index(value)
    except TypeError:
        raise TypeError(f"{_wrong(name, value, least, most)}, not {type(value).__name__}") from None
    if number < least or (most is not None and number > most):
        raise ValueError(_wrong(name, number, least, most))
    return number


def optional_number(name: str, value: SupportsIndex | None, least: int = 0, most: int = MOST_NUMBER) -> int | None:
    """Does the same as `whole_number`, for an argument that can be None."""
    return None if value is None else whole_number(name, value, least, most)


def integer(name: str, value: SupportsIndex) -> int:
    """Returns the argument `name` as an `int` of any size. The caller checks the range."""
    try:
        return _index(value)
    except TypeError:
        text = f"{name}={shown(value)} is not valid: it must be a whole number, not {type(value).__name__}"
        raise TypeError(text) from None


def _index(value: Any) -> int:
    # Arrays and tensors of one boolean also have `__index__`; their dtype shows that they are booleans.
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        raise TypeError
    return index(value)


def _wrong(name: str, value: object, least: int, most: int | None) -> str:
    above = "up" if most is None else f"to {_limit(most)}"
    return f"{name}={shown(value)} is not valid: it must be a whole number from {least} {above}"


def _limit(most: int) -> str:
    """The number as text. A large one is written as a power of two: 2**63 - 1."""
    power = most.bit_length()
    if power > 31 and most == 2**power - 1:
        return f"2**{power} - 1"
    return f"2**{power - 1}" if power > 32 and most == 2 ** (power - 1) else str(most)


def state_numbers(state: Mapping[str, int], keys: Iterable[str], of: str) -> list[int]:
    """The whole numbers in the saved state of an iterator or a sampler (`of`). Raises ValueError if one is missing.

    >>> state_numbers({"position": 3}, ["position"], "an iterator")
    [3]
    >>> state_numbers({"position": True}, ["position"], "an iterator")
    Traceback (most recent call last):
    ValueError: this is not the state of an iterator; pass what state_dict() returned, not {'position': True}
    """
    try:
        return [_index(state[key]) for key in keys]
    except (LookupError, TypeError, ValueError):
        text = f"this is not the state of {of}; pass what state_dict() returned, not {shown(state)}"
        raise ValueError(text) from None


def shown(value: object) -> str:
    """A value in a message, cut if it is long."""
    try:
        text = repr(value)
    except Exception:  # a number of thousands of digits has no repr, a deep list neither, and that of a class may raise
        return f"<{type(value).__name__}>"
    return text if len(text) <= 60 else f"{text[:50]}..."
