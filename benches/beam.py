"""Conversion by Apache Beam on worker processes: our pipelines beside the original's, on the same files in one run.

Each pipeline runs in a process of its own. Its time includes the start of the runner and of the workers, but
not the imports before it: the original's import TensorFlow.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyrecord

from benches.conversion import RECORD_BYTES, make
from benches.results import Run

SHARDS = 8

ORIGINAL = """
args = {{"input": source, "output": target + "/original"}}
pipelines.{call}.run().wait_until_finish()
"""

OURS = """
convert(source, target + "/{name}", pipeline_options=options, runner="FnApiRunner", group_size=1, {keywords})
"""

SCRIPT = """
import sys, time
from apache_beam.options.pipeline_options import PipelineOptions
source, target, workers = sys.argv[1:]
del sys.argv[1:]
flags = ["--runner=FnApiRunner", "--direct_running_mode=multi_processing", "--direct_num_workers=" + workers]
options = PipelineOptions(flags)
{imports}
begin = time.perf_counter()
{script}
print("seconds", time.perf_counter() - begin)
"""


@dataclass(frozen=True)
class Way:
    """One pipeline."""

    name: str
    script: str
    is_original: bool = False


WAYS = [
    Way(
        f"original: convert_tf_to_arrayrecord_disk, {SHARDS} shards",
        ORIGINAL.format(call=f"convert_tf_to_arrayrecord_disk({SHARDS}, args, options)"),
        is_original=True,
    ),
    Way(
        "original: ..._disk_match_shards",
        ORIGINAL.format(call="convert_tf_to_arrayrecord_disk_match_shards(args, options)"),
        is_original=True,
    ),
    Way(f"anyrecord: {SHARDS} shards", OURS.format(name="ours.array_record", keywords=f"num_shards={SHARDS}")),
    Way("anyrecord: a shard for each bundle", OURS.format(name="ours.array_record", keywords="")),
    Way("anyrecord: one file for each input", OURS.format(name="", keywords='format="array_record"')),
]


def main(run: Run) -> dict[str, Any] | None:
    """Prints a table: seconds, MB of records a second, and how many times faster than the original."""
    if find_spec("apache_beam") is None:
        print("Apache Beam is missing: pip install -r requirements/frameworks.txt\n")
        return None
    with tempfile.TemporaryDirectory(dir=run.folder) as folder:
        return report(Path(folder), 100_000_000 if run.quick else 1_000_000_000, os.cpu_count() or 1)


def report(folder: Path, total_bytes: int, workers: int) -> dict[str, Any]:
    sources = folder / "source"
    sources.mkdir()
    for shard in range(SHARDS):
        make(sources / f"old-{shard:05}-of-{SHARDS:05}.tfrecord", total_bytes // SHARDS)
    records = SHARDS * (total_bytes // SHARDS // RECORD_BYTES)
    print(
        f"TFRecord to ArrayRecord by Beam on {workers} processes, {total_bytes / 1e9:.2f} GB in {SHARDS} files, "
        f"records of {RECORD_BYTES} bytes, group_size=1, zstd"
    )
    print(f"  {'':<56} {'seconds':>8} {'MB/s':>6} {'times':>6}")
    found: dict[str, Any] = {}
    fastest_original: float | None = None
    for way in WAYS:
        target = folder / "target"
        target.mkdir()
        seconds = measure(way, str(sources / "*.tfrecord"), target, workers)
        if seconds is None:
            print(f"  {way.name:<56} {'fails':>8}")
            found[way.name] = {"fails": True}
        else:
            written = sum(len(anyrecord.open([path])) for path in target.iterdir())
            if written != records:
                raise SystemExit(f"{way.name} wrote {written} of {records} records")
            rate = total_bytes / seconds / 1e6
            if way.is_original:
                fastest_original = min(seconds, fastest_original or seconds)
            times = None if fastest_original is None else fastest_original / seconds
            shown = "" if times is None else f"{times:>6.1f}"
            print(f"  {way.name:<56} {seconds:>8.2f} {rate:>6.0f} {shown}", flush=True)
            found[way.name] = {"seconds": seconds, "MB/s": rate, "times": times}
        shutil.rmtree(target)
    shutil.rmtree(sources)
    print()
    return found


def measure(way: Way, source: str, target: Path, workers: int) -> float | None:
    """Seconds. None if the pipeline fails."""
    imports = "from array_record.beam import pipelines" if way.is_original else "from anyrecord.beam import convert"
    program = SCRIPT.format(imports=imports, script=way.script)
    command = [sys.executable, "-c", program, source, str(target), str(workers)]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=target.parent)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"  {way.name}: after {time.perf_counter() - begin:.1f} s: {last[:160]}")
        return None
    return float(done.stdout.split("seconds")[-1])
