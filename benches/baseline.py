"""Compares instruction counts with the committed baseline: `make instructions`.

A count depends on the compilers, the C library and the features of the processor, so the baseline stores them. If they
are the same here, a count above the baseline is a failure. If they differ, the baseline is only printed. The versions
of dependencies are not stored: they are committed, so the cost of an upgrade shows like the cost of any other change.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benches.results import rounded
from benches.tables import show

BASELINE = Path(__file__).parent / "results" / "instructions.json"
CHANGE = 0.03
"""A figure may be this much above its baseline. A larger difference is marked."""
FEATURES = ("ssse3", "sse4_2", "pclmulqdq", "aes", "popcnt", "avx", "avx2", "bmi1", "bmi2", "abm", "fma")
"""The processor features by which the code, its dependencies and the C library select functions.

Only features that valgrind passes on; AVX-512 is not one of them.
"""
ARM_FEATURES = ("asimd", "aes", "pmull", "crc32", "sve")


@dataclass(frozen=True)
class Baseline:
    """Instructions a record, and the toolchain and processor that they were counted with."""

    counted_with: dict[str, str]
    instructions: dict[str, float]


def load() -> Baseline:
    stored = json.loads(BASELINE.read_text())
    return Baseline(stored["counted_with"], stored["instructions"])


def save(baseline: Baseline) -> None:
    stored = {"counted_with": baseline.counted_with, "instructions": rounded(baseline.instructions)}
    BASELINE.write_text(json.dumps(stored, indent=1) + "\n")


def here() -> dict[str, str]:
    """The toolchain and processor of this machine."""
    rustc = dict(line.split(": ", 1) for line in output("rustc", "-vV").splitlines() if ": " in line)
    return {
        "rustc": output("rustc", "-V"),
        "target": rustc.get("host", "unknown"),
        "rustflags": os.environ.get("RUSTFLAGS", ""),
        "C compiler": output(os.environ.get("CC", "cc"), "--version").partition("\n")[0],
        "C library": c_library(),
        "valgrind": output("valgrind", "--version"),
        "processor": " ".join(features()),
    }


def output(*command: str) -> str:
    """The output of a command. "unknown" if it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def c_library() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (AttributeError, OSError, ValueError):
        return "unknown"


def features() -> list[str]:
    """The features that this processor has, of those in `FEATURES` or `ARM_FEATURES`."""
    wanted = ARM_FEATURES if platform.machine() in ("aarch64", "arm64") else FEATURES
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ["unknown"]
    offered = next(
        (line.partition(":")[2].split() for line in lines if line.lower().startswith(("flags", "features"))), []
    )
    return [feature for feature in wanted if feature in offered]


def differences(counted_with: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """A line for each tool or feature that differs from the baseline.

    >>> differences({"rustc": "1.95", "target": "x86_64"}, {"rustc": "1.96", "target": "x86_64"})
    ['rustc: 1.95 in the baseline, 1.96 here']
    """
    keys = [*counted_with, *(key for key in now if key not in counted_with)]
    pairs = [(key, counted_with.get(key, "nothing"), now.get(key, "nothing")) for key in keys]
    return [
        f"{key}: {old or 'nothing'} in the baseline, {new or 'nothing'} here" for key, old, new in pairs if old != new
    ]


def failures(found: Mapping[str, float], instructions: Mapping[str, float]) -> list[str]:
    """A line for each figure that is too far above its baseline, was not counted, or has no baseline.

    >>> failures({"read": 104.0, "write": 50.0}, {"read": 100.0, "write": 100.0})
    ['read: 104 instructions a record, 100 in the baseline: +4.0 % SLOWER']
    """
    lines = []
    for name, old in instructions.items():
        now = found.get(name)
        if now is None:
            lines.append(f"{name}: not counted, {old:,.0f} in the baseline")
        elif part(now, old) > CHANGE:
            lines.append(f"{name}: {now:,.0f} instructions a record, {old:,.0f} in the baseline: {change(now, old)}")
    return lines + [f"{name}: not in the baseline" for name in found if name not in instructions]


def part(now: float, old: float) -> float:
    """The relative increase of a figure, without rounding errors."""
    return round(now / old - 1, 9)


def change(now: float | None, old: float | None) -> str:
    """How much a figure differs from the baseline, with a mark if the difference is significant.

    >>> change(100, None), change(101, 100), change(110, 100), change(80, 100), change(None, 100)
    ('new', '+1.0 %', '+10.0 % SLOWER', '-20.0 % faster', 'not counted')
    """
    if now is None or old is None:
        return "new" if old is None else "not counted"
    more = part(now, old)
    mark = "" if abs(more) <= CHANGE else " SLOWER" if more > 0 else " faster"
    return f"{more * 100:+.1f} %{mark}"


def print_table(found: Mapping[str, float], baseline: Baseline) -> None:
    """Prints the counts next to the baseline."""
    rows = []
    for name, figure in found.items():
        old = baseline.instructions.get(name)
        rows.append((name, [f"{figure:,.1f}", "-" if old is None else f"{old:,.1f}", change(figure, old)]))
    show("instructions a record", ["now", "baseline", "change"], rows)


def check(found: Mapping[str, float], now: Mapping[str, str], baseline: Baseline) -> list[str]:
    """Prints a table and a verdict. Returns the failures. It does not compare with a baseline of another machine."""
    print_table(found, baseline)
    other = differences(baseline.counted_with, now)
    if other:
        print("not compared: the baseline was made with another toolchain or processor")
        for line in other:
            print(f"  {line}")
        print("To compare on this machine, make a baseline of the code before your change:")
        print("  git worktree add ../before origin/HEAD")
        print("  make -C ../before instructions-baseline")
        print(f"  cp ../before/benches/results/{BASELINE.name} benches/results/")
        return []
    wrong = failures(found, baseline.instructions)
    for line in wrong:
        print(line)
    passed = f"no figure is more than {CHANGE * 100:.0f} % above its baseline"
    print(f"FAILED: {len(wrong)} of {len(found)} figures" if wrong else passed)
    print("To replace the baseline with these figures, run: make instructions-baseline")
    return wrong


def main() -> None:
    from benches import instructions

    parser = argparse.ArgumentParser(prog="python -m benches.baseline", description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the baseline with the new counts")
    is_written = parser.parse_args().write
    if shutil.which("valgrind") is None:
        if is_written:
            raise SystemExit(instructions.MISSING)
        print(instructions.MISSING)
        return
    found = instructions.hot_paths(instructions.SIZES)
    if is_written:
        save(Baseline(here(), found))
        print(f"wrote {BASELINE}")
    elif check(found, here(), load()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
