"""The rate of the raw disk for the same aligned ranges, without the page cache, by the number of reads in flight.

A small program reads them with io_uring and discards the data (`crates/core/examples/raw_disk.rs`).
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

ALIGNED = 4096
DEPTHS = (1, 8, 32, 64, 128, 256)
ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "target" / "release" / "examples" / "raw_disk"


def aligned(begin: int, end: int) -> tuple[int, int]:
    """The aligned range that holds a range.

    >>> aligned(5000, 9000)
    (4096, 12288)
    """
    return begin // ALIGNED * ALIGNED, -(-end // ALIGNED) * ALIGNED


def rates(path: Path, ranges: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Ranges a second, by the number in flight. If it cannot be measured, prints the reason and returns nothing."""
    if not build():
        return {}
    found = {}
    size = path.stat().st_size
    for depth in DEPTHS:
        few = ranges if depth > 1 else ranges[: max(1, len(ranges) // 8)]
        with tempfile.NamedTemporaryFile() as wanted:
            # The last block can be longer than the rest of the file; the read then ends with the file.
            inside = [(begin, end - begin) for begin, end in few if begin < size]
            wanted.write(b"".join(struct.pack("<QQ", *piece) for piece in inside))
            wanted.flush()
            done = subprocess.run(
                [str(PROGRAM), str(path), wanted.name, str(depth)], capture_output=True, text=True, check=False
            )
        if done.returncode != 0:
            print(f"# the raw disk cannot be measured: {done.stderr.strip()[-200:]}")
            return {}
        found[str(depth)] = float(done.stdout.split()[1])
    return found


def build() -> bool:
    """Builds the program. Without cargo, uses one that was built before. Returns whether there is a program."""
    if shutil.which("cargo") is None:
        if not PROGRAM.exists():
            print("# the raw disk is not measured: cargo is missing; install Rust from https://rustup.rs")
        return PROGRAM.exists()
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--package", "anyrecord", "--example", "raw_disk"]
    subprocess.run(command, cwd=ROOT, check=True)
    return True
