"""`buffer`, which copies nothing, and `read_into`, compared with a plain copy by the same number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import anyrecord
import numpy as np
from anyrecord import Records

from benches import machine
from benches.outcomes import Outcome
from benches.results import Run
from benches.tables import number, show
from benches.timing import random_picks, timed
from benches.workloads import THREE

LOOKS = 2000
MOST_BUFFER = 0.3
"""Microseconds that a `buffer` may take."""
LEAST_COPY = 0.8
"""How much of the speed of a plain copy `read_into` should have."""
FILES: dict[str, dict[str, Any]] = {".ffr": {}, ".array_record": {"codec": "none", "group_size": 1}}


def main(run: Run) -> dict[str, Any]:
    """Prints and returns microseconds a `buffer`, and GB/s of `read_into` and of the copy, by size and format."""
    found: dict[str, dict[str, float]] = {}
    for workload in THREE:
        for suffix, options in FILES.items():
            path = run.folder / f"in_place{suffix}"
            with anyrecord.create(path, durable=False, overwrite=True, **options) as out:
                out.write_many(workload.make(10 if run.quick else 1))
            with anyrecord.open(path, checksums=False) as records:
                found[f"{workload.name}, {suffix}"] = measure(run, records)
            path.unlink()
    rows = []
    for name, row in found.items():
        rows.append((name, [*map(number, row.values()), f"{row['into'] / row['copy']:.0%}"]))
    columns = ["buffer, microseconds", "read_into, GB/s", "plain copy, GB/s", "of it"]
    print(f"random records, checksums=False; the copy is made by {machine.cores()} threads")
    show(f"goals: {MOST_BUFFER} microseconds, and {LEAST_COPY:.0%} of a plain copy", columns, rows)
    return found


def measure(run: Run, records: Records) -> dict[str, float]:
    picks = random_picks(len(records))
    sizes = records.sizes()
    assert sizes is not None
    total = sum(sizes[pick] for pick in picks)
    out, source = np.zeros(total, np.uint8), np.ones(total, np.uint8)
    with ThreadPoolExecutor(machine.cores()) as pool:
        rounds = range(3 * run.rounds)
        return {
            "buffer": min(timed(partial(look, records)) for _ in rounds) / LOOKS * 1e6,
            "into": total / min(timed(partial(records.read_into, out, picks)) for _ in rounds) / 1e9,
            "copy": total / min(timed(partial(copy, pool, out, source)) for _ in rounds) / 1e9,
        }


def look(records: Records) -> None:
    last = len(records)
    for index in range(LOOKS):
        records.buffer(index % last)


def copy(pool: ThreadPoolExecutor, out: Any, source: Any) -> None:
    """Each thread copies its part. numpy releases the GIL while it copies."""
    part = -(-len(out) // machine.cores())
    begins = range(0, len(out), part)
    list(pool.map(lambda at: np.copyto(out[at : at + part], source[at : at + part]), begins))


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    for name, row in found.items():
        yield Outcome(f"{name}: buffer", row["buffer"], MOST_BUFFER, is_most=True, unit=" microseconds")
        yield Outcome(f"{name}: read_into, of a plain copy", row["into"] / row["copy"], LEAST_COPY, unit="%")
