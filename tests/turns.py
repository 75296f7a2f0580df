"""Loops inside one test.

A product of every storage and every wrong argument as tests of their own makes thousands of tests, and opens and closes
files for each. One test that goes through the arguments proves the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def turn(name: object) -> Iterator[None]:
    """One turn of a loop in a test: a failure says which turn it was.

    >>> try:
    ...     with turn("three"):
    ...         assert 3 > 4
    ... except AssertionError as error:
    ...     error.__notes__
    ["in the turn 'three'"]
    """
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the turn {name!r}")
        raise
