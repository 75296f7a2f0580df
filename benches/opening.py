"""Opening: seconds and memory for ten million records in one file and for many shards; files larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyrecord

from benches import larger, numbered
from benches.children import ask
from benches.goals import verdict
from benches.outcomes import Outcome
from benches.results import Run
from benches.tables import number, show

GOAL = 3.0
"""How many times faster, and how many times smaller, than the original."""
MEANING = {"seconds": "faster", "stays": "smaller", "peak": "smaller at the peak"}
SHARDS = (64, 1000)
RECORDS_IN_A_SHARD = 1000

# In each script, `opened()` opens the files in sys.argv[1:] and `first()` reads one record. The import is not measured.
OURS = """
import anyrecord
def opened():
    return anyrecord.open(sys.argv[1:])
def first(records, number):
    return records[number]
"""
SEEKING = """
from array_record.python.array_record_module import ArrayRecordReader
def opened():
    return ArrayRecordReader(sys.argv[1], "readahead_buffer_size:0,max_parallelism:0")
def first(reader, number):
    reader.seek(number)
    return reader.read()
"""
READER = """
from array_record.python.array_record_module import ArrayRecordReader
def opened():
    return ArrayRecordReader(sys.argv[1])
def first(reader, number):
    return reader.read([number])[0]
"""
SOURCE = """
from array_record.python.array_record_data_source import ArrayRecordDataSource
def opened():
    return ArrayRecordDataSource(sys.argv[1:])
def first(source, number):
    return source[number]
"""
TIMED = """
before = memory()
begin = time.perf_counter()
held = opened()
seconds = time.perf_counter() - begin
after = memory()
begin = time.perf_counter()
first(held, 0)
touched = time.perf_counter() - begin
answer(seconds=seconds, stays=after["VmRSS"] - before["VmRSS"], peak=after["VmHWM"] - before["VmHWM"], first=touched)
"""
EVERY_SHARD = """
import os
begin = time.perf_counter()
held = opened()
seconds = time.perf_counter() - begin
for shard in range(len(sys.argv) - 1):
    first(held, shard * 1000)
every = time.perf_counter() - begin
answer(seconds=seconds, every=every, files=len(os.listdir("/proc/self/fd")), memory=memory()["VmRSS"])
"""


def main(run: Run) -> dict[str, Any]:
    """Prints the three tables and returns their content."""
    return {"one file": one_file(run), "shards": many_shards(run), "larger than memory": larger.main(run)}


def one_file(run: Run) -> dict[str, Any]:
    count = numbered.lengths(run)[-1]
    path = numbered.array_record(run, count)
    ways = {
        "anyrecord": OURS,
        'anyrecord, table="disk"': OURS.replace("sys.argv[1:]", 'sys.argv[1:], table="disk"'),
        "anyrecord, checksums=False": OURS.replace("sys.argv[1:]", "sys.argv[1:], checksums=False"),
        "array_record, seek and read": SEEKING,
        "array_record, parallel reader": READER,
    }
    found: dict[str, dict[str, float]] = {}
    for _ in range(run.rounds):
        for name, way in ways.items():
            asked = ask(way + TIMED, path)
            best = found.setdefault(name, asked)
            found[name] = {what: min(best[what], asked[what]) for what in best}
    rows = [(name, [number(row[what]) for what in ("seconds", "stays", "peak")]) for name, row in found.items()]
    title = f"opening one ArrayRecord file of {count:,} records (group_size=1), in a separate process, page cache warm"
    show(title, ["seconds", "MB more", "MB more at the peak"], rows)
    ours = found["anyrecord"]
    theirs = {what: min(found[name][what] for name in ways if name.startswith("array_record")) for what in ours}
    for what, adjective in MEANING.items():
        print(f"  times {adjective} than the better reader of the original: {verdict(theirs[what] / ours[what], GOAL)}")
    print()
    return found


def many_shards(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for count in SHARDS:
        paths = shards(run, count)
        rows = {}
        for name, way in {"anyrecord": OURS, "array_record data source": SOURCE}.items():
            asked = [ask(way + EVERY_SHARD, *paths) for _ in range(run.rounds)]
            rows[name] = {what: min(one[what] for one in asked) for what in asked[0]}
        found[str(count)] = rows
        title = f"opening {count:,} shards of {RECORDS_IN_A_SHARD:,} records each"
        columns = ["seconds", "seconds with one read of each", "descriptors", "MB"]
        show(title, columns, [(name, [number(figure) for figure in row.values()]) for name, row in rows.items()])
        ratio = rows["array_record data source"]["every"] / rows["anyrecord"]["every"]
        print(f"  times faster until a record of each shard is read: {verdict(ratio, None)}\n")
    return found


def shards(run: Run, count: int) -> list[Path]:
    """`count` files. Written once in a run."""
    folder = run.folder / f"{count} shards"
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{shard:05}.array_record" for shard in range(count)]
    for path in paths:
        if not path.exists():
            with anyrecord.create(path, codec="none", group_size=1, durable=False) as out:
                out.write_many(numbered.records(RECORDS_IN_A_SHARD))
    return paths


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    rows = found["one file"]
    others = [row for name, row in rows.items() if name.startswith("array_record")]
    for what in ("seconds", "stays", "peak") if others else ():
        least = min(row[what] for row in others)
        yield Outcome(
            f"one file, {MEANING[what]} than the better reader of the original", least / rows["anyrecord"][what], GOAL
        )
