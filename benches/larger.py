"""Iteration over a file larger than the allowed memory. Memory use and the cost of a record should not grow.

With `--cgroup FOLDER`, an empty memory cgroup that this program may use, the memory and the page cache of the child
process are limited. Without it, only the child's own memory is limited (RLIMIT_DATA). The page cache is not limited,
and the table shows the resident memory.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from benches import numbered
from benches.children import PRELUDE, last_line
from benches.page_cache import forget
from benches.results import Run
from benches.tables import number, show

TENTHS = 10
LEAST_BYTES = 96 << 20
"""Enough for Python itself and the stacks of threads, with a reserve."""

SCRIPT = """
import anyrecord
path, io = sys.argv[1:]
records = anyrecord.open(path, io=io, table="disk")
tenth = len(records) // 10
parts, count, begin = [], 0, time.perf_counter()
for record in records:
    count += 1
    if count % tenth == 0:
        now = time.perf_counter()
        parts.append({"microseconds": (now - begin) / tenth * 1e6, **memory()})
        begin = time.perf_counter()
answer(parts=parts, records=count)
"""


def main(run: Run) -> dict[str, Any]:
    """Prints memory and cost by tenths of the file. Returns them by way of reading."""
    path = numbered.array_record(run, numbered.lengths(run)[-1])
    size = path.stat().st_size
    limit = max(LEAST_BYTES, size // (4 if run.cgroup else 8))
    held = "memory and page cache, by a cgroup" if run.cgroup else "its own memory, by RLIMIT_DATA"
    print(f"iteration over a cold file of {size / 1e6:,.0f} MB; the process is allowed {limit / 1e6:,.0f} MB ({held})")
    found: dict[str, Any] = {}
    for io in ("plain", "map"):
        forget(path)
        parts = iterate(path, io, limit, run.cgroup)
        found[io] = parts
        what = {"microseconds a record": "microseconds", "resident MB": "VmRSS", "of them its own": "RssAnon"}
        rows = [(title, [number(part[name]) for part in parts]) for title, name in what.items()]
        show(f'io="{io}", by tenths of the file', [f"{i + 1}/{TENTHS}" for i in range(len(parts))], rows)
        # Memory is allocated during the first tenth. After that it should not grow.
        grown = parts[-1]["RssAnon"] - parts[0]["RssAnon"]
        costs = sorted(part["microseconds"] for part in parts)
        spread = costs[-1] / costs[len(costs) // 2]
        print(f"  its own memory grew by {grown:.1f} MB; the slowest tenth took {spread:.2f}x the middle one\n")
    return found


def iterate(path: Path, io: str, limit: int, cgroup: Path | None) -> list[dict[str, float]]:
    """Iterates in a child process with limited memory. Returns the figures of each tenth."""

    def confine() -> None:
        if cgroup is None:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        else:
            one = cgroup / "memory.max"
            (one if one.exists() else cgroup / "memory.limit_in_bytes").write_text(str(limit))
            (cgroup / "cgroup.procs").write_text("0")

    command = [sys.executable, "-c", PRELUDE + SCRIPT, str(path), io]
    child = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=confine)
    parts: list[dict[str, float]] = last_line(child)["parts"]
    return parts
