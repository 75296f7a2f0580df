"""Runs the program `crates/core/examples/damage.rs`, which damages files byte by byte, and reads what it prints."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from checks.figures import Figure

__all__ = ["GOLDEN", "Damaged", "damage", "golden_files"]

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
PROGRAM = ROOT / "target" / "release" / "examples" / "damage"
_RECORD_FILE = re.compile(r"\.(ffr|recordio|tfrecord|array_record)(\.gz|\.zlib|-\d+-of-\d+)?$")
_MEMORY = 1 << 30
"""Bytes that the program may take. The largest file has 400 KB: an allocation by a bogus number fails."""
_SHORT_SECONDS, _LONG_SECONDS = 600, 4 * 3600
"""Far more than it takes on a busy machine. A call that does not end is found by counting its steps. This is for one
that does not count them."""


@dataclass
class Damaged:
    """What came of damaging files."""

    tried: dict[str, int] = field(default_factory=dict)
    """By the path of the file."""
    violations: list[str] = field(default_factory=list)
    unseen: list[tuple[str, int, int]] = field(default_factory=list)
    """Changes that `verify` did not report: path, offset and value of the byte."""
    notes: dict[str, int] = field(default_factory=dict)
    """Other counts, by name."""

    def figure(self, what: str, at_least: int) -> Figure:
        """All of it, as one figure."""
        return Figure(what, sum(self.tried.values()), self.violations, at_least)


def golden_files() -> list[Path]:
    """All record files in `tests/golden`, the damaged ones too."""
    return sorted(path for path in GOLDEN.rglob("*") if _RECORD_FILE.search(path.name))


def damage(mode: str, files: Iterable[Path], short: bool) -> Damaged:
    """Damages each of the files in each of the ways of `mode`: `read`, `verify` or `cut`."""
    _build()
    command = [str(PROGRAM), mode, "some" if short else "all", *map(str, files)]
    seconds = _SHORT_SECONDS if short else _LONG_SECONDS
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, preexec_fn=_limit_memory)
    except subprocess.TimeoutExpired:
        return Damaged(violations=[f"{mode}: no end after {seconds} seconds"])
    found = Damaged()
    if done.returncode != 0:
        found.violations.append(f"{mode}: exit status {done.returncode}: {done.stderr[-500:]}")
    for line in done.stdout.splitlines():
        kind, path, *rest = line.split("\t")
        if kind == "tried":
            found.tried[path] = found.tried.get(path, 0) + int(rest[0])
        elif kind == "unseen":
            found.unseen.append((path, int(rest[0]), int(rest[1])))
        elif kind == "violation":
            found.violations.append(f"{path}: {rest[0]}")
        else:
            found.notes[kind] = found.notes.get(kind, 0) + int(rest[0])
    return found


def _build() -> None:
    if shutil.which("cargo") is None:
        sys.exit("cargo is missing: install Rust from https://rustup.rs to damage files")
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--package", "anyrecord", "--example", "damage"]
    subprocess.run(command, cwd=ROOT, check=True)


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
