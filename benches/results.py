"""Results as a small JSON file: the machine, and what each benchmark found there."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches import machine

LATEST = Path(__file__).parent / "results" / "latest.json"
"""Where results go unless told otherwise; not committed."""


@dataclass
class Results:
    """What was found on one machine. A benchmark that runs again replaces what it found before."""

    machine: dict[str, str]
    sections: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, found: Any) -> None:
        self.sections[name] = {"date": machine.today(), "found": found}

    def found(self, name: str) -> Any:
        """What a benchmark found, or None."""
        return self.sections.get(name, {}).get("found")

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        told = {"machine": self.machine, "sections": self.sections}
        path.write_text(json.dumps(rounded(told), indent=1) + "\n")


def load(path: Path) -> Results:
    told = json.loads(path.read_text())
    return Results(told["machine"], told["sections"])


def continued(path: Path, folder: Path) -> Results:
    """The results in a file, to be added to; those of another machine are not mixed with ours."""
    here = machine.describe(folder)
    if not path.exists():
        return Results(here)
    old = load(path)
    for what in ("cpu", "cores", "memory"):
        if old.machine[what] != here[what]:
            raise SystemExit(f"{path} is of a machine with {what} {old.machine[what]}: choose another file with --save")
    return Results(here, old.sections)


def rounded(told: Any) -> Any:
    """The same with four digits that mean something: the rest is noise, and makes files large."""
    if isinstance(told, float):
        return float(f"{told:.4g}")
    if isinstance(told, dict):
        return {key: rounded(value) for key, value in told.items()}
    return [rounded(value) for value in told] if isinstance(told, list | tuple) else told


@dataclass(frozen=True)
class Run:
    """How to run a benchmark."""

    folder: Path
    """Where its files go; removed at the end."""
    rounds: int = 3
    quick: bool = False
    """A few minutes for everything: less data, the same shape."""
    only: str = ""
    """Only sizes whose name contains this."""
    drop_caches: bool = False
    """Whether the page cache of the whole machine may be emptied."""
    cgroup: Path | None = None
    """A memory cgroup that may be limited and filled."""
