"""Runs benchmarks, prints their results and saves them.

Without a name, it runs most of them, as `make bench` does. `everything` also runs those that take long, skips what this
machine cannot run, and writes README.md and docs/, as `make bench-all` does.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import tempfile
import time
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benches import machine, pages, plot
from benches.outcomes import outcomes, print_outcomes
from benches.results import LATEST, Run, continued

BENCHMARKS = {
    "stores": "every store at every size, and how many times faster anyrecord is",
    "fresh": "every record once in a new process, as a training worker reads it",
    "curve": "reads of files of a thousand to ten million records",
    "instructions": "instructions a record, counted by valgrind: for machines that are too noisy to measure time",
    "codecs": "every codec at its documented levels: size and speed",
    "opening": "seconds and memory to open ten million records and many shards; files larger than memory",
    "cold": "files that are not in the page cache, compared with the rate of the disk",
    "first_epoch": "every record once from cold files, beside reading them once in order",
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
    "durable": "files of 1 GB that are on the disk when close() returns, beside files that are not",
    "upload": "writing to an object store, beside writing local files and uploading them",
}
BY_NAME_ONLY = {
    "accelerators",
    "beam",
    "durable",
    "first_epoch",
    "gpu",
    "loaders",
    "remote",
    "shard_queue",
    "upload",
}
"""They take long, or need what few machines have. Without them, `make bench` takes less than 20 minutes."""
NEVER_UNNAMED = {"gpu"}
"""Not in `everything` either."""


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
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, "all", "everything"], metavar="name", default="all")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement; the best counts")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data: a few minutes for everything")
    parser.add_argument("--only", default="", help="only sizes whose name contains this, such as 'KB'")
    parser.add_argument("--save", type=Path, help=f"the JSON file that results are added to (default: {LATEST.name})")
    parser.add_argument("--folder", type=Path, help="the folder for files; needs about 15 GB (default: TMPDIR)")
    parser.add_argument(
        "--drop-caches", action="store_true", help="cold: empty the page cache of the whole machine, if permitted"
    )
    parser.add_argument("--cgroup", type=Path, help="opening: an empty memory cgroup to run a child in, with a limit")
    arguments = parser.parse_args()
    asked = [arguments.names] if isinstance(arguments.names, str) else arguments.names
    is_everything = "everything" in asked
    names = chosen(asked)
    begin = time.perf_counter()
    minutes: dict[str, float] = {}
    failed: dict[str, BaseException] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        run = Run(
            folder=Path(folder),
            rounds=arguments.rounds,
            quick=arguments.quick,
            only=arguments.only,
            drop_caches=arguments.drop_caches,
            cgroup=arguments.cgroup,
        )
        is_whole = is_everything and not run.quick and not run.only
        save = arguments.save or (committed(run.folder) if is_whole else LATEST)
        results = continued(save, run.folder)
        for what, value in results.machine.items():
            print(f"{what}: {value}")
        print()
        for name in names:
            print(f"== {name}: {BENCHMARKS[name]}\n", flush=True)
            before = time.perf_counter()
            try:
                benchmark = importlib.import_module(f"benches.{name}")
                gc.collect()
                gc.freeze()  # the collector runs before each figure: it need not look at all modules each time
                found = benchmark.main(run)
            except (Exception, SystemExit) as error:
                if len(names) == 1:
                    raise
                failed[name] = error
                traceback.print_exc()
                continue
            minutes[name] = (time.perf_counter() - before) / 60
            if found is not None:
                results.add(name, found)
                results.save(save)
                draw(name, found, save)
    print_outcomes(outcomes(results, names), only_missed=not is_everything)
    print(f"\nminutes: {', '.join(f'{name} {took:.1f}' for name, took in minutes.items())}")
    print(f"{(time.perf_counter() - begin) / 60:.1f} minutes; saved in {save}")
    if is_whole:
        pages.write(save)
    if failed:
        raise SystemExit("\n".join(f"{name} failed: {error}" for name, error in failed.items()))


def chosen(names: list[str]) -> list[str]:
    """The benchmarks to run.

    >>> "gpu" in chosen(["everything"]), "beam" in chosen(["everything"]), "beam" in chosen(["all"]), chosen(["curve"])
    (False, True, False, ['curve'])
    """
    if "everything" in names:
        return [name for name in BENCHMARKS if name not in NEVER_UNNAMED]
    if "all" in names:
        return [name for name in BENCHMARKS if name not in BY_NAME_ONLY]
    return names


def committed(folder: Path) -> Path:
    """The file for the results of this machine that is committed, and that documentation is made from."""
    return LATEST.with_name(f"{machine.file_name(machine.describe(folder))}.json")


if __name__ == "__main__":
    main()
