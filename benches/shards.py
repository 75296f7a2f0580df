"""Batches over many files, compared with batches from one file that has the same records."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import anyrecord

from benches.cold import RECORD_BYTES, WAYS_TO_READ
from benches.page_cache import forget
from benches.results import Run
from benches.tables import number, show
from benches.timing import BATCH

FILES = 256
IN_A_FILE = 32
BATCHES = 20


def main(run: Run) -> dict[str, Any]:
    """Prints records a second from one file and from many, and their ratio. Returns these by way."""
    count = FILES * IN_A_FILE
    print(f"{count:,} records of {RECORD_BYTES:,} bytes in one FFRecord file and in {FILES}; each batch has {BATCH}")
    print(f"records from all over; median of {run.rounds} rounds, the files take turns\n")
    one, many = run.folder / "one.ffr", run.folder / "many.ffr"
    pool = random.Random(7).randbytes(2_000_000)
    records = [pool[at : at + RECORD_BYTES] for at in range(0, count * 200, 200)]
    with anyrecord.create(one) as out:
        out.write_many(records)
    with anyrecord.create(many, shards=FILES) as out:
        out.write_many(records)
    shards = [Path(path) for path in out.paths]
    picks = random.Random(9)
    batches = [picks.sample(range(count), BATCH) for _ in range(BATCHES)]
    found: dict[str, Any] = {}
    for heat in ("cold", "in the page cache"):
        for name, options in WAYS_TO_READ.items():
            rates: dict[str, list[float]] = {"one": [], "many": []}
            for _ in range(run.rounds):
                for which, paths in (("one", [one]), ("many", shards)):
                    rates[which].append(rate(paths, batches, options, is_cold=heat == "cold"))
            way = f"{heat}{name}"
            found[way] = {which: median(figures) for which, figures in rates.items()}
            found[way]["ratio"] = found[way]["many"] / found[way]["one"]
    rows = [(way, [number(row[what]) for what in ("one", "many", "ratio")]) for way, row in found.items()]
    show("records a second", ["one file", f"{FILES} files", "ratio"], rows)
    return found


def rate(paths: Sequence[Path], batches: list[list[int]], options: dict[str, Any], *, is_cold: bool) -> float:
    """Records a second in batches from these files."""
    took = 0.0
    # A cold file is opened again for each batch, because pages that were read from a map stay in the page cache.
    for of_one_reader in [[batch] for batch in batches] if is_cold else [batches]:
        with anyrecord.open([str(path) for path in paths], **options) as records:
            if is_cold:
                for path in paths:
                    forget(path)
            for batch in of_one_reader:
                begin = time.perf_counter()
                records[batch]
                took += time.perf_counter() - begin
    return len(batches) * BATCH / took
