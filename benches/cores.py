"""Batches decoded by several threads: records of 4 KB of text, zstd, one record a chunk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import anyrecord
from anyrecord import Records

from benches import machine
from benches.results import Run
from benches.tables import number, show
from benches.timing import each, enough, in_batches, random_picks, timed
from benches.workloads import named

THREADS = (1, 2, 4, 8, 16)


def main(run: Run) -> dict[str, Any]:
    """Prints microseconds a record by the number of threads. Returns them by who starts the threads."""
    path = run.folder / "cores.array_record"
    with anyrecord.create(path, codec="zstd", level=3, group_size=1, durable=False) as out:
        out.write_many(named("4 KB").make(10 if run.quick else 1))
    with anyrecord.open(path) as records:
        batches = enough(records.__getitem__, in_batches(random_picks(len(records))), 0.5)
    found: dict[str, dict[str, float]] = {}
    for _ in range(run.rounds):
        for threads in (None, *THREADS):
            with anyrecord.open(path, threads=threads) as records:
                note(found, "open(threads=N), one caller", str(threads or "automatic"), records, batches, 1)
        with anyrecord.open(path, threads=1) as records:
            for callers in THREADS:
                note(found, "N callers", str(callers), records, batches, callers)
    columns = list(dict.fromkeys(threads for row in found.values() for threads in row))
    rows = []
    for name, row in found.items():
        rows.append((f"{name}: microseconds", [number(row.get(threads)) for threads in columns]))
        gains = [f"{row['1'] / row[threads]:.2f}x" if threads in row else "-" for threads in columns]
        rows.append((f"{name}: speed-up", gains))
    title = f"batches of 256 random records of about 4 KB, zstd:3, by N threads; {machine.cores()} cores here"
    show(title, columns, rows)
    path.unlink()
    return found


def note(
    found: dict[str, dict[str, float]],
    name: str,
    threads: str,
    records: Records,
    batches: list[list[int]],
    callers: int,
) -> None:
    """Keeps the best figure."""
    row = found.setdefault(name, {})
    each(records.__getitem__, batches[:2])
    figure = timed(partial(called, records, batches, callers)) / sum(map(len, batches)) * 1e6
    row[threads] = min(figure, row.get(threads, figure))


def called(records: Records, batches: list[list[int]], callers: int) -> None:
    if callers == 1:
        each(records.__getitem__, batches)
        return
    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(lambda part: each(records.__getitem__, part), [batches[i::callers] for i in range(callers)]))
