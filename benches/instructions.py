"""Instructions a record, counted by valgrind: the same on a busy machine as on a quiet one.

The core alone reads files, and callgrind counts between marks in that program. A baseline is committed beside the
results; what differs from it by more than a few percent is marked.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyrecord

from benches import numbered
from benches.results import Run
from benches.tables import show
from benches.workloads import WORKLOADS

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "target" / "release" / "examples" / "hot_paths"
BASELINE = Path(__file__).parent / "results" / "instructions.json"
CHANGE = 0.03
"""What is marked as a change from the baseline."""
FLAT = 0.05
"""How much a curve may rise and still be flat."""
WAYS = ("single", "batch", "order")
SIZES = WORKLOADS[:2]
WARM = COUNT = 1024
"""Records that are read before counting begins, and then."""


@dataclass(frozen=True)
class Kind:
    """A kind of file, and the ways in which it is read."""

    name: str
    suffix: str
    options: dict[str, Any] = field(default_factory=dict)
    ways: tuple[str, ...] = WAYS


KINDS = [
    Kind("ffrecord", ".ffr"),
    Kind("array_record none", ".array_record", {"codec": "none", "group_size": 1}),
    Kind("array_record zstd", ".array_record", {"codec": "zstd", "level": 3, "group_size": 1}),
    # At random it would be the cache of decoded chunks that is measured.
    Kind("array_record g256 zstd", ".array_record", {"codec": "zstd", "level": 3, "group_size": 256}, ("order",)),
    Kind("recordio none", ".recordio", {"codec": "none"}),
    Kind("recordio snappy", ".recordio", {"codec": "snappy"}),
]


def main(run: Run) -> dict[str, float] | None:
    """Prints instructions a record beside the baseline; returns them by a name for each."""
    if shutil.which("valgrind") is None:
        print("valgrind is missing: install it (Debian: apt install valgrind) to count instructions\n")
        return None
    build()
    print("instructions a record in the core, in all its threads, without Python and without the kernel")
    print("(valgrind offers no AVX-512, so code that uses it here counts as the code for older processors does)\n")
    found: dict[str, float] = {}
    for workload in SIZES[:1] if run.quick else SIZES:
        records = workload.make(10)[: 2 * WARM + COUNT]
        for kind in KINDS:
            path = run.folder / f"instructions{kind.suffix}"
            with anyrecord.create(path, durable=False, overwrite=True, **kind.options) as out:
                out.write_many(records)
            for way, figure in count(path, kind.ways).items():
                found[f"{kind.name}, {workload.name}, {way}"] = figure
            path.unlink()
    lengths = numbered.lengths(run)
    for length in lengths:
        for way, figure in count(numbered.array_record(run, length), WAYS[:2]).items():
            found[f"curve, {way}, {length:,}"] = figure
    tell(found)
    flat(found, lengths)
    return found


def build() -> None:
    """Builds the program that is counted, from the sources as they are."""
    if shutil.which("cargo") is None:
        raise SystemExit("cargo is missing: install Rust from https://rustup.rs to count instructions")
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--package", "anyrecord", "--example", "hot_paths"]
    subprocess.run(command, cwd=ROOT, check=True)


def count(path: Path, ways: tuple[str, ...]) -> dict[str, float]:
    """Instructions for a record, by way."""
    with tempfile.TemporaryDirectory() as folder:
        parts = Path(folder) / "part"
        counting = ["valgrind", "--tool=callgrind", "--dump-before=*hot_paths::mark*", f"--callgrind-out-file={parts}"]
        command = [*counting, str(PROGRAM), str(path), str(WARM), str(COUNT), *ways]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        if told.returncode != 0:
            raise SystemExit(f"counting the instructions of {path.name} failed:\n{told.stderr[-2000:]}")
        # Every other part is the reading that counts; between them the next way warms up.
        return {way: total(parts.with_suffix(f".{2 * i + 2}").read_text()) / COUNT for i, way in enumerate(ways)}


def total(part: str) -> int:
    """The sum in a file of callgrind.

    >>> total("events: Ir\\ntotals: 1234\\n")
    1234
    """
    found = re.search(r"^totals: (\d+)$", part, re.MULTILINE)
    if found is None:
        raise SystemExit("callgrind wrote a file without a sum")
    return int(found[1])


def tell(found: dict[str, float]) -> None:
    """Prints what was counted beside the committed baseline."""
    baseline: dict[str, float] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    rows = []
    for name, figure in found.items():
        old = baseline.get(name)
        rows.append((name, [f"{figure:,.0f}", "-" if old is None else f"{old:,.0f}", change(figure, old)]))
    show("instructions a record", ["now", "baseline", "change"], rows)
    print(f"to make this the baseline: python -m benches.instructions RESULTS.json, which writes {BASELINE.name}\n")


def change(now: float, old: float | None) -> str:
    """How much a figure differs from the baseline; a mark if that is more than chance.

    >>> change(100, None), change(101, 100), change(110, 100), change(80, 100)
    ('new', '+1.0 %', '+10.0 % SLOWER', '-20.0 % faster')
    """
    if old is None:
        return "new"
    part = now / old - 1
    mark = "" if abs(part) <= CHANGE else " SLOWER" if part > 0 else " faster"
    return f"{part * 100:+.1f} %{mark}"


def flat(found: dict[str, float], lengths: list[int]) -> None:
    """Prints whether reads cost the same in a file of any length."""
    for way in WAYS[:2]:
        curve = [found[f"curve, {way}, {length:,}"] for length in lengths]
        rise = max(curve) / min(curve) - 1
        verdict = "reached" if rise <= FLAT else "missed,"
        shown = ", ".join(f"{figure:,.0f}" for figure in curve)
        print(f"{way}, {lengths[0]:,} to {lengths[-1]:,} records: {shown} instructions a record")
        print(f"  goal: the same within {FLAT:.0%}: {verdict} {rise:.1%}")
    print()


if __name__ == "__main__":
    import sys

    from benches.results import load, rounded

    counted = load(Path(sys.argv[1])).found("instructions")
    BASELINE.write_text(json.dumps(rounded(counted), indent=1) + "\n")
    print(f"wrote {BASELINE}")
