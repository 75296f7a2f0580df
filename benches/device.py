"""The disk alone: how fast it gives the same aligned ranges, past the page cache, with so many in flight.

A small program does it (`crates/core/examples/raw_disk.rs`), through io_uring, and gives what it read to nobody.
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
    """The blocks that hold a range.

    >>> aligned(5000, 9000)
    (4096, 12288)
    """
    return begin // ALIGNED * ALIGNED, -(-end // ALIGNED) * ALIGNED


def rates(path: Path, ranges: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Ranges a second, by how many were in flight. Empty, with the reason printed, where it cannot be measured."""
    if not build():
        return {}
    found = {}
    size = path.stat().st_size
    for depth in DEPTHS:
        few = ranges if depth > 1 else ranges[: max(1, len(ranges) // 8)]
        with tempfile.NamedTemporaryFile() as wanted:
            # The last block of a file may be shorter than a block; the disk gives all of it.
            inside = [(begin, end - begin) for begin, end in few if begin < size]
            wanted.write(b"".join(struct.pack("<QQ", *piece) for piece in inside))
            wanted.flush()
            told = subprocess.run(
                [str(PROGRAM), str(path), wanted.name, str(depth)], capture_output=True, text=True, check=False
            )
        if told.returncode != 0:
            print(f"# the disk alone cannot be measured: {told.stderr.strip()[-200:]}")
            return {}
        found[str(depth)] = float(told.stdout.split()[1])
    return found


def build() -> bool:
    """Makes the program, unless it is there and there is no cargo."""
    if shutil.which("cargo") is None:
        if not PROGRAM.exists():
            print("# the disk alone is not measured: cargo is missing")
        return PROGRAM.exists()
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--package", "anyrecord", "--example", "raw_disk"]
    subprocess.run(command, cwd=ROOT, check=True)
    return True
