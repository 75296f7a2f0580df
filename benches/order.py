"""The cost of shuffling: the permutation itself, a shuffled pass over a warm file, and when a block shuffle pays."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyrecord
from anyrecord import Permutation, Records

from benches.outcomes import Outcome
from benches.page_cache import forget
from benches.results import Run
from benches.timing import BATCH, each, timed
from benches.workloads import THREE

AT_ONCE = 1_000_000
MOST_SHUFFLED = 1.5
"""How many times as long a shuffled pass may take as batches of known record numbers."""


def main(run: Run) -> dict[str, Any]:
    """Prints all three tables and returns their content."""
    found: dict[str, Any] = {"permutation, ns": permutations(run.rounds)}
    with tempfile.TemporaryDirectory(dir=run.folder) as folder:
        found["a pass, microseconds a record"] = shuffled_passes(Path(folder), run.rounds)
        found["blocks, thousand records a second"] = block_shuffles(Path(folder), run.rounds)
    return found


def permutations(rounds: int) -> dict[str, Any]:
    found = {}
    print(f"permutation, {AT_ONCE:,} positions at once, best of {rounds}")
    for length in (10**6, 10**9, 10**12):
        tracemalloc.start()
        permutation = Permutation(length, seed=42, epoch=3)
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        blocks = Permutation(length, seed=42, epoch=3, window=64, block=256)
        full = best(rounds, partial(permutation.take, range(AT_ONCE)))
        block = best(rounds, partial(blocks.take, range(AT_ONCE)))
        each = 1e9 / AT_ONCE
        print(
            f"  n = {length:>17,}: {full * each:5.1f} ns an element, {block * each:5.1f} ns in blocks;"
            f" {memory:,} bytes of Python memory"
        )
        found[str(length)] = {"full": full * each, "blocks": block * each, "bytes": memory}
    print()
    return found


def shuffled_passes(folder: Path, rounds: int) -> dict[str, Any]:
    found = {}
    print(f"a pass over a warm FFRecord file in batches of {BATCH}, microseconds a record, best of {rounds}")
    print("  (a shuffled pass compared with batches of the same precomputed record numbers;")
    print(f"  the goal is at most {MOST_SHUFFLED}x)")
    for workload in THREE:
        path = folder / "warm.ffr"
        with anyrecord.create(path, durable=False, overwrite=True, num_records=workload.records) as out:
            out.write_many(workload.make())
        records = anyrecord.open(path)
        order = records.shuffle(seed=42, epoch=3)
        numbers = Permutation(len(records), seed=42, epoch=3).take(range(len(records)))
        batches = [numbers[i : i + BATCH].tolist() for i in range(0, len(numbers), BATCH)]
        ways: list[Callable[[], object]] = [
            partial(each, records.__getitem__, batches),
            partial(in_batches, order),
            partial(one_by_one, order),
            partial(in_batches, records),
        ]
        known, shuffled, singly, in_order = (took / len(records) * 1e6 for took in interleaved(rounds, ways))
        print(
            f"  {workload.name:>7}: numbers known {known:6.2f}, shuffled {shuffled:6.2f} ({shuffled / known:.2f}x),"
            f" one by one {singly:6.2f} ({singly / known:.2f}x), in file order {in_order:6.2f}"
        )
        records.close()
        found[workload.name] = {"known": known, "shuffled": shuffled, "one by one": singly, "in order": in_order}
    print()
    return found


def block_shuffles(folder: Path, rounds: int) -> dict[str, Any]:
    found = {}
    print(f"full shuffle and block shuffle (window of 64 blocks), batches of {BATCH}, thousand records a second")
    grouped = folder / "grouped.array_record"
    with anyrecord.create(grouped, codec="zstd", group_size=100, durable=False) as out:
        out.write_many(THREE[0].make())
    # The cache of 8 MiB is smaller than the data, as it is for a data set larger than memory.
    warm = "ArrayRecord, zstd, chunks of 100, warm"
    found[warm] = compare(warm, lambda: anyrecord.open(grouped, cache_bytes=8 << 20), None, 1)
    cold = folder / "cold.ffr"
    with anyrecord.create(cold, num_records=THREE[1].records) as out:
        out.write_many(THREE[1].make())

    def open_cold() -> Records:
        forget(cold)
        return anyrecord.open(cold)

    # Only a tenth of an epoch: a whole epoch would bring all of the file into the page cache.
    title = "FFRecord, 4 KB, blocks of 64, the first tenth of a cold file"
    found[title] = compare(title, open_cold, 64, rounds, part=10)
    print()
    return found


def compare(title: str, open: Callable[[], Records], block: int | None, rounds: int, part: int = 1) -> dict[str, float]:
    speed: dict[str, float] = {}
    for _ in range(rounds):
        for name in ("file order", "full shuffle", "block shuffle"):
            with open() as records:
                order = records
                if name == "full shuffle":
                    order = records.shuffle(seed=1)
                elif name == "block shuffle":
                    order = records.shuffle(seed=1, window=64, block=block)
                order = order[: len(order) // part]
                figure = len(order) / timed(partial(in_batches, order)) / 1e3
            speed[name] = max(figure, speed.get(name, 0))
    listed = ", ".join(f"{name} {figure:,.0f}" for name, figure in speed.items())
    print(f"  {title}: {listed} ({speed['block shuffle'] / speed['full shuffle']:.1f}x)")
    return speed


def best(rounds: int, job: Callable[[], object]) -> float:
    return min(timed(job) for _ in range(rounds))


def interleaved(rounds: int, jobs: list[Callable[[], object]]) -> list[float]:
    figures = [[timed(job) for job in jobs] for _ in range(rounds)]
    return [min(column) for column in zip(*figures, strict=True)]


def in_batches(records: Records) -> None:
    for _ in records.batches(BATCH):
        pass


def one_by_one(records: Records) -> None:
    for _ in records:
        pass


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    for size, row in found["a pass, microseconds a record"].items():
        what = f"{size}: a shuffled pass beside batches of known numbers"
        yield Outcome(what, row["shuffled"] / row["known"], MOST_SHUFFLED, is_most=True)
