"""Measures which lines of the formats and codecs the corpora reach, and lists those that they do not reach.

    python fuzz/coverage.py [--least 95] [--missed]

Runs the replay test of the committed corpora with coverage instrumentation. Needs the component llvm-tools of Rust.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ("crates/core/src/format/", "crates/core/src/codec/")
BUILD = ROOT / "target" / "coverage"


def tool(name: str) -> str:
    """An LLVM tool that fits the compiler."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip()
    found = next(Path(sysroot).glob(f"lib/rustlib/*/bin/{name}"), None)
    return str(found) if found else sys.exit(f"{name} is missing: run `rustup component add llvm-tools`")


def cargo_test(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the replay test with coverage instrumentation."""
    environment = {
        **os.environ,
        "RUSTFLAGS": "-Cinstrument-coverage",
        "LLVM_PROFILE_FILE": str(BUILD / "replay-%p.profraw"),
    }
    command = ["cargo", "test", "-p", "anyrecord", "--test", "replay", "--locked", "--target-dir", str(BUILD)]
    return subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )


def measure() -> dict[str, dict[int, int]]:
    """For each source file, how often each of its lines ran."""
    profdata, cov = tool("llvm-profdata"), tool("llvm-cov")
    built = cargo_test("--no-run", "--message-format=json").stdout.splitlines()
    messages = [json.loads(line) for line in built if line.startswith("{")]
    binary = next(m["executable"] for m in messages if m.get("target", {}).get("name") == "replay")
    for old in BUILD.glob("*.profraw"):
        old.unlink()
    cargo_test("--quiet")
    profile = BUILD / "replay.profdata"
    raw = [str(path) for path in BUILD.glob("*.profraw")]
    subprocess.run([profdata, "merge", "-sparse", "-o", str(profile), *raw], check=True)
    exported = subprocess.run(
        [cov, "export", "--format=lcov", f"--instr-profile={profile}", binary],
        check=True,
        capture_output=True,
        text=True,
    )
    lines: dict[str, dict[int, int]] = {}
    current: dict[int, int] = {}
    for line in exported.stdout.splitlines():
        key, _, value = line.partition(":")
        if key == "SF":
            current = lines.setdefault(value, {})
        elif key == "DA":
            number, count = value.split(",")[:2]
            current[int(number)] = current.get(int(number), 0) + int(count)
    return lines


def without_tests(path: Path, lines: dict[int, int]) -> dict[int, int]:
    """The lines of a file that are not part of its unit tests."""
    source = path.read_text().splitlines()
    end = next((i for i, line in enumerate(source, 1) if line == "mod tests {"), len(source) + 1)
    return {number: count for number, count in lines.items() if number < end}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--least", type=float, default=95, help="percentage below which the command fails")
    parser.add_argument("--missed", action="store_true", help="print the lines that no input reaches")
    arguments = parser.parse_args()
    reached = total = 0
    for name, lines in sorted(measure().items()):
        path = Path(name)
        short = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else name
        if not short.startswith(MEASURED) or "/tests" in short or short.endswith("testing.rs"):
            continue
        lines = without_tests(path, lines)
        hit = sum(count > 0 for count in lines.values())
        reached, total = reached + hit, total + len(lines)
        print(f"{100 * hit / max(len(lines), 1):6.1f} %  {hit:5} of {len(lines):5}  {short}")
        if arguments.missed:
            source = path.read_text().splitlines()
            for number in sorted(number for number, count in lines.items() if not count):
                print(f"          {number:5}: {source[number - 1].strip()}")
    share = 100 * reached / max(total, 1)
    print(f"{share:6.1f} %  {reached:5} of {total:5}  all")
    return 0 if share >= arguments.least else 1


if __name__ == "__main__":
    sys.exit(main())
