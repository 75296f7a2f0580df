"""Instructions a record, counted by valgrind. The count is the same on a busy machine and on a quiet one.

A small program calls the core without Python, and callgrind counts between marks in that program. `benches/baseline.py`
compares the counts with the committed baseline.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyrecord

from benches import baseline, numbered
from benches.outcomes import Outcome
from benches.results import Run
from benches.workloads import THREE, Workload

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "target" / "release" / "examples" / "hot_paths"
FLAT = 0.05
"""How much a curve may rise and still count as flat."""
READS = ("single", "batch", "order")
WAYS = (*READS, "write")
SIZES = THREE[:2]
WARM = COUNT = 1024
"""How many records are read or written before counting begins, and how many are counted."""
DISTURBED = 3
"""The exit status of the program if the file left or entered the page cache while it counted."""
TRIES = 5
BY_THE_CLOCK = "waits::happened"
"""A function that a read calls only if the read was slow. That depends on the machine's load, so it is not counted."""
PLAIN_COPIES = "glibc.cpu.hwcaps=-ERMS,-FSRM"
"""Makes the C library copy with loops, not with one instruction that valgrind would count once for each byte."""
MISSING = "valgrind is missing: install it (Debian: apt install valgrind; macOS has none) to count instructions"


@dataclass(frozen=True)
class Kind:
    """A kind of file, and the ways in which it is read and written."""

    name: str
    suffix: str
    options: dict[str, Any] = field(default_factory=dict)
    ways: tuple[str, ...] = WAYS


KINDS = [
    Kind("ffrecord", ".ffr"),
    Kind("array_record none", ".array_record", {"codec": "none", "group_size": 1}),
    Kind("array_record zstd", ".array_record", {"codec": "zstd", "level": 3, "group_size": 1}),
    # No random reads: they would measure the cache of decoded chunks.
    Kind("array_record g256 zstd", ".array_record", {"codec": "zstd", "level": 3, "group_size": 256}, WAYS[2:]),
    Kind("recordio none", ".recordio", {"codec": "none"}),
    Kind("recordio snappy", ".recordio", {"codec": "snappy"}),
    Kind("tfrecord", ".tfrecord"),
]


def main(run: Run) -> dict[str, float] | None:
    """Prints instructions a record next to the baseline. Returns them by name."""
    if shutil.which("valgrind") is None:
        print(f"{MISSING}\n")
        return None
    found = hot_paths(SIZES[:1] if run.quick else SIZES)
    print("instructions a record in the core, in all its threads, without Python and without the kernel")
    print("(valgrind has no AVX-512, so the code for older processors is counted instead)\n")
    baseline.print_table(found, baseline.load())
    lengths = numbered.lengths(run)
    for length in lengths:
        for way, figure in count(numbered.array_record(run, length), READS[:2]).items():
            found[f"curve, {way}, {length:,}"] = figure
    flat(found, lengths)
    return found


def hot_paths(sizes: Sequence[Workload]) -> dict[str, float]:
    """Instructions a record, for every kind of file, size and way. The records are the same in every run."""
    build()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for workload in sizes:
            records = workload.make(10)[: 2 * WARM + COUNT]
            for kind in KINDS:
                path = Path(folder) / f"records{kind.suffix}"
                with anyrecord.create(path, durable=False, overwrite=True, **kind.options) as out:
                    out.write_many(records)
                for way, figure in count(path, kind.ways, kind.options).items():
                    found[f"{kind.name}, {workload.name}, {way}"] = figure
    return found


def build() -> None:
    """Builds the program whose instructions are counted."""
    if shutil.which("cargo") is None:
        raise SystemExit("cargo is missing: install Rust from https://rustup.rs to count instructions")
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--package", "anyrecord", "--example", "hot_paths"]
    subprocess.run(command, cwd=ROOT, check=True)


def count(path: Path, ways: tuple[str, ...], options: dict[str, Any] | None = None) -> dict[str, float]:
    """Instructions a record, by way."""
    given = [f"{key}={value}" for key, value in (options or {}).items()]
    for _ in range(TRIES):
        # Bring the file into the page cache. Reads that miss it take other code paths.
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass
        with tempfile.TemporaryDirectory() as folder:
            parts = Path(folder) / "part"
            done = counted_run(parts, [path.name, str(WARM), str(COUNT), *ways, *given], path.parent)
            if done.returncode == 0:
                # Only every second part counts. In the parts between them, the next way warms up.
                return {
                    way: total(parts.with_suffix(f".{2 * i + 2}").read_text()) / COUNT for i, way in enumerate(ways)
                }
            if done.returncode != DISTURBED:
                raise SystemExit(f"counting the instructions of {path.name} failed:\n{done.stderr[-2000:]}")
    raise SystemExit(f"{path} was dropped from the page cache {TRIES} times while it was read: run this again")


def counted_run(parts: Path, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the program in a folder. callgrind writes its counts to files whose names begin with `parts`."""
    callgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={parts}", "--dump-before=*hot_paths::mark*"]
    # The order matters: the first option turns off counting at the start, the second turns it on again.
    outside = [f"--toggle-collect=*{BY_THE_CLOCK}*", "--collect-atstart=yes"]
    command = [*callgrind, *outside, str(PROGRAM), *arguments]
    environment = {**os.environ, "GLIBC_TUNABLES": PLAIN_COPIES}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def total(part: str) -> int:
    """The total in a callgrind file.

    >>> total("events: Ir\\ntotals: 1234\\n")
    1234
    """
    found = re.search(r"^totals: (\d+)$", part, re.MULTILINE)
    if found is None or found[1] == "0":
        raise SystemExit("callgrind wrote a file without a total")
    return int(found[1])


def flat(found: dict[str, float], lengths: list[int]) -> None:
    """Prints whether reads cost the same in a file of any length."""
    for way in READS[:2]:
        curve = [found[f"curve, {way}, {length:,}"] for length in lengths]
        rise = max(curve) / min(curve) - 1
        verdict = "reached" if rise <= FLAT else "missed,"
        shown = ", ".join(f"{figure:,.0f}" for figure in curve)
        print(f"{way}, {lengths[0]:,} to {lengths[-1]:,} records: {shown} instructions a record")
        print(f"  goal: the same within {FLAT:.0%}: {verdict} {rise:.1%}")
    print()


def outcomes(found: dict[str, float]) -> Iterator[Outcome]:
    for way in READS[:2]:
        curve = [figure for name, figure in found.items() if name.startswith(f"curve, {way}, ")]
        if curve:
            rise = max(curve) / min(curve) - 1
            what = f"{way}: instructions more a record in a longer file"
            yield Outcome(what, rise, FLAT, is_most=True, unit="%")
