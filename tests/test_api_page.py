"""`docs/api.md` shows the whole public surface: every public name is on it, and nothing else is."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import anyrecord
import pytest

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
FRAMEWORKS = {"anyrecord.torch"}
MODULE = re.compile(r"## `([\w.]+)`")
CLASS = re.compile(r"#### `(\w+)`")
ROW = re.compile(r"\| `(\.?)(\w+)(?:\((.*?)\))?` \|")


@dataclass
class Listed:
    """What the page lists of one module."""

    names: dict[str, str | None] = field(default_factory=dict)
    """Functions, classes and constants, with their parameters where they have any."""
    members: dict[str, dict[str, str | None]] = field(default_factory=dict)
    """Of each class."""


def page() -> dict[str, Listed]:
    found: dict[str, Listed] = {}
    listed = Listed()
    members: dict[str, str | None] = {}
    for line in PAGE.read_text().splitlines():
        if heading := MODULE.fullmatch(line):
            listed = found[heading[1]] = Listed()
        elif line.startswith("### "):
            members = {}
        elif heading := CLASS.fullmatch(line):
            assert heading[1] not in listed.members, f"{heading[1]} twice"
            members = listed.members[heading[1]] = {}
        elif row := ROW.match(line):
            place = members if row[1] else listed.names
            assert row[2] not in place, f"{row[2]} twice"
            place[row[2]] = row[3]
    return found


def parameters(function: object) -> Iterator[str]:
    """As the page has them: names, and a star before those that are passed by keyword."""
    is_starred = False
    for name, parameter in inspect.signature(function).parameters.items():  # type: ignore[arg-type]
        if name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not is_starred:
            is_starred = True
            yield "*"
        stars = 1 if parameter.kind is parameter.VAR_POSITIONAL else 2 if parameter.kind is parameter.VAR_KEYWORD else 0
        yield "*" * stars + name


def public_members(kind: type) -> set[str]:
    """What a class has beyond what it takes from Python's own."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("anyrecord")]
    return {name for base in own for name in vars(base) if not name.startswith("_")}


MODULES = [pytest.param(name, marks=pytest.mark.framework if name in FRAMEWORKS else ()) for name in page()]


def test_the_public_modules_are_on_the_page() -> None:
    assert list(page()) == ["anyrecord", "anyrecord.sampling", "anyrecord.torch", "anyrecord.compat"]


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_on_the_page_and_nothing_else(name: str) -> None:
    module, listed = importlib.import_module(name), page()[name]
    assert {*listed.names, *listed.members} == set(module.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_functions_have_the_parameters_that_the_page_shows(name: str) -> None:
    module, listed = importlib.import_module(name), page()[name]
    for function, shown in listed.names.items():
        if shown is not None:
            assert shown == ", ".join(parameters(getattr(module, function))), function


@pytest.mark.parametrize("name", MODULES)
def test_classes_have_the_members_that_the_page_shows(name: str) -> None:
    module, listed = importlib.import_module(name), page()[name]
    for kind, members in listed.members.items():
        of = getattr(module, kind)
        assert set(members) == public_members(of), kind
        for member, shown in members.items():
            is_called = callable(inspect.getattr_static(of, member)) or inspect.isroutine(getattr(of, member))
            assert (shown is not None) == is_called, f"{kind}.{member}"
            if shown is not None:
                assert shown == ", ".join(parameters(getattr(of, member))), f"{kind}.{member}"


def test_every_class_but_the_errors_shows_its_members() -> None:
    classes = {name for name in anyrecord.__all__ if inspect.isclass(getattr(anyrecord, name))}
    errors = {name for name in classes if issubclass(getattr(anyrecord, name), Exception)}
    assert set(page()["anyrecord"].members) == classes - errors
    assert set(anyrecord.errors.__all__) == errors
