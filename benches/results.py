"""Saves results as a small JSON file: the machine, and the figures of each benchmark."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches import machine

LATEST = Path(__file__).parent / "results" / "latest.json"
"""The default file for results. It is not committed."""


@dataclass
class Results:
    """The results of one machine. If a benchmark runs again, it replaces its old results."""

    machine: dict[str, str]
    sections: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, found: Any) -> None:
        self.sections[name] = {"date": machine.today(), "found": found, **self._changing()}

    def _changing(self) -> dict[str, str]:
        """What may differ between two runs on the same machine. So each section keeps its own."""
        return {what: self.machine[what] for what in ("system", "packages") if what in self.machine}

    def described(self, name: str) -> dict[str, str]:
        """The machine, as it was when a benchmark ran."""
        section = self.sections.get(name, {})
        return {what: section.get(what, value) for what, value in self.machine.items()}

    def found(self, name: str) -> Any:
        """The results of a benchmark, or None."""
        return self.sections.get(name, {}).get("found")

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        stored = {"machine": self.machine, "sections": self.sections}
        path.write_text(json.dumps(rounded(stored), indent=1) + "\n")


def load(path: Path) -> Results:
    stored = json.loads(path.read_text())
    results = Results(stored["machine"], {})
    results.sections = {name: {**results._changing(), **section} for name, section in stored["sections"].items()}
    return results


def continued(path: Path, folder: Path) -> Results:
    """Loads the results in a file, to add to them. Results of another machine are refused."""
    here = machine.describe(folder)
    if not path.exists():
        return Results(here)
    old = load(path)
    for what in ("cpu", "cores", "memory"):
        if old.machine[what] != here[what]:
            raise SystemExit(
                f"{path} has results of another machine ({what} {old.machine[what]}): choose another file with --save"
            )
    return Results(here, old.sections)


def rounded(value: Any) -> Any:
    """Rounds all figures in a value to four significant digits. More digits are noise and make files large."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class Run:
    """How to run a benchmark."""

    folder: Path
    """The folder for its files. It is removed at the end."""
    rounds: int = 3
    quick: bool = False
    """Less data, so all benchmarks take only a few minutes."""
    only: str = ""
    """Only sizes whose name contains this."""
    drop_caches: bool = False
    """Whether the page cache of the whole machine may be emptied."""
    cgroup: Path | None = None
    """An empty memory cgroup that the benchmark may use."""
