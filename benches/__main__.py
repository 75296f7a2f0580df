"""Runs benchmarks, prints their results and saves them. Without a name, it runs most of them, as `make bench` does."""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benches import plot
from benches.results import LATEST, Run, continued

BENCHMARKS = {
    "stores": "every store at every size, and how many times faster anyrecord is",
    "curve": "reads of files of a thousand to ten million records",
    "instructions": "instructions a record, counted by valgrind: for machines that are too noisy to measure time",
    "codecs": "every codec at its documented levels: size and speed",
    "opening": "seconds and memory to open ten million records and many shards; files larger than memory",
    "cold": "files that are not in the page cache, compared with the rate of the disk",
    "shards": "batches over 256 files, beside batches from one file",
    "cores": "batches decoded by several threads",
    "callers": "many threads that read at the same time: lists, read_packed, read_into",
    "in_place": "records without a copy, and read_into compared with a plain copy",
    "order": "the cost of shuffling",
    "conversion": "one large file converted to another format",
    "beam": "many files converted by Apache Beam on worker processes, beside the original's pipelines",
    "cache": "the second epoch from the local cache of remote files, beside local files",
    "remote": "a shuffled epoch from an object store, beside libraries that download shards",
    "loaders": "a shuffled epoch in PyTorch from local files, beside other loaders",
    "gpu": "random records to the memory of a GPU, beside a plain copy",
    "accelerators": "how many simulated accelerators one machine keeps busy, as MLPerf Storage counts them",
    "shard_queue": "what a queue of shards costs: 10,000 shards, 1,000 simulated workers, and the rates of real stores",
    "upload": "writing to an object store, beside writing local files and uploading them",
}
BY_NAME_ONLY = {"loaders", "gpu", "accelerators", "beam", "shard_queue"}
"""They take long, or need what few machines have."""


def draw(name: str, found: Any, saved: Path) -> None:
    """Draws the picture of a benchmark that has one, beside the saved results, if matplotlib is there."""
    if find_spec("matplotlib") is not None and name in plot.PICTURES:
        path = saved.with_name(f"{saved.stem}-{name}.svg")
        plot.PICTURES[name](found, path)
        print(f"picture: {path}\n")


def main() -> None:
    listed = "\n".join(f"  {name:<14}{what}" for name, what in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benches",
        description=f"{__doc__}\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, "all"], metavar="name", default="all")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement; the best counts")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data: a few minutes for everything")
    parser.add_argument("--only", default="", help="only sizes whose name contains this, such as 'KB'")
    parser.add_argument("--save", type=Path, default=LATEST, help="the JSON file that results are added to")
    parser.add_argument("--folder", type=Path, help="the folder for files; needs about 10 GB (default: TMPDIR)")
    parser.add_argument(
        "--drop-caches", action="store_true", help="cold: empty the page cache of the whole machine, if permitted"
    )
    parser.add_argument("--cgroup", type=Path, help="opening: an empty memory cgroup to run a child in, with a limit")
    arguments = parser.parse_args()
    most = [name for name in BENCHMARKS if name not in BY_NAME_ONLY]
    names = most if "all" in arguments.names or not arguments.names else arguments.names
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        run = Run(
            folder=Path(folder),
            rounds=arguments.rounds,
            quick=arguments.quick,
            only=arguments.only,
            drop_caches=arguments.drop_caches,
            cgroup=arguments.cgroup,
        )
        results = continued(arguments.save, run.folder)
        for what, value in results.machine.items():
            print(f"{what}: {value}")
        print()
        for name in names:
            print(f"== {name}: {BENCHMARKS[name]}\n", flush=True)
            found = importlib.import_module(f"benches.{name}").main(run)
            if found is not None:
                results.add(name, found)
                results.save(arguments.save)
                draw(name, found, arguments.save)
    print(f"{(time.perf_counter() - begin) / 60:.1f} minutes; saved in {arguments.save}")


if __name__ == "__main__":
    main()
