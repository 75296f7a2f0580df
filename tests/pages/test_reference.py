"""The reference has every public name, and nothing else. What it says of each comes from the docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest
from anyrecord import _core

ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"
MODULES = {
    "anyrecord": "__init__.py",
    "anyrecord.beam": "beam/__init__.py",
    "anyrecord.compat": "compat/__init__.py",
    "anyrecord.errors": "errors.py",
    "anyrecord.ray": "ray/__init__.py",
    "anyrecord.sampling": "sampling.py",
    "anyrecord.torch": "torch/__init__.py",
}
NAMES = Counter(
    name
    for page in REFERENCE.glob("*.md")
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
)


def public(module: str) -> set[str]:
    """The names in `__all__`, from the source: importing frameworks takes long."""
    tree = ast.parse((ROOT / "python" / "anyrecord" / MODULES[module]).read_text(encoding="utf-8"))
    assigned = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    return set(ast.literal_eval(assigned["__all__"]))


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference_once(module: str) -> None:
    names = public(module)
    if module == "anyrecord":
        names -= public("anyrecord.errors")  # they are shown where they are defined
    found = {name.rpartition(".")[2]: count for name, count in NAMES.items() if name.rpartition(".")[0] == module}
    assert found == dict.fromkeys(names, 1)


def test_nothing_else_is_in_the_reference() -> None:
    assert {name.rpartition(".")[0] for name in NAMES} == set(MODULES)


def test_docstrings_of_the_core_are_the_same_in_its_stub() -> None:
    """The site reads the stub, and `help()` the compiled module."""
    tree = ast.parse((ROOT / "python" / "anyrecord" / "_core.pyi").read_text(encoding="utf-8"))
    shown = {"Packed", "Permutation", "Records", "RecordsIterator", "Writer"}
    compared = 0
    for kind in tree.body:
        if isinstance(kind, ast.ClassDef) and kind.name in shown:
            for member in kind.body:
                if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                    compiled = inspect.getdoc(getattr(getattr(_core, kind.name), member.name))
                    assert compiled
                    assert (ast.get_docstring(member) or "").split() == compiled.split(), f"{kind.name}.{member.name}"
                    compared += 1
    assert compared >= 16
