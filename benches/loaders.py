"""Loaders for PyTorch: a whole shuffled epoch from local files, delivered to the main process, beside other libraries.

Every cell is measured in a fresh process. The clock runs from opening the data set to the last batch; what is imported
is imported before. In an extra round every sample is checked, and memory is measured.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benches.cold import disk_bytes, make_cold
from benches.goals import times
from benches.libraries.job import Job
from benches.libraries.processes import ask, python_with
from benches.outcomes import Outcome
from benches.results import Run
from benches.tables import number, show

SHARD_BYTES = 64_000_000
"""Of the libraries that need shards."""
ONE_FILE = 1 << 62
HEATS = ("warm", "cold")
SLOW_START = 1.0
"""Seconds. A library whose first batch takes longer gets a line that says how fast it is afterwards."""
INSTALL = "make bench-loaders installs what is missing"
COLUMNS = ("warm samples/s", "first batch, ms", "cold samples/s", "first batch, ms", "disk MB", "peak MB", "near")


@dataclass(frozen=True)
class Workload:
    """The samples of a data set."""

    name: str
    count: int
    sample_bytes: int
    batch: int
    spread: float = 0.0
    pictures: bool = False

    def job(self, part: int) -> Job:
        """One `part`-th of the samples."""
        return Job(
            prefix="",
            count=self.count // part,
            sample_bytes=self.sample_bytes,
            shard_bytes=SHARD_BYTES // part,
            endpoint="",
            folder="",
            spread=self.spread,
            batch_samples=self.batch,
            pictures=self.pictures,
        )


WORKLOADS = [
    Workload("4 KB", 250_000, 4_000, 256),
    Workload("20 to 180 KB", 12_000, 100_000, 64, spread=0.8),
    Workload("JPEG pictures, decoded", 8_000, 20_000, 64, pictures=True),
]


@dataclass
class Library:
    """A library and its figures, by whether files were in the page cache and by the number of workers."""

    name: str
    module: str
    package: str
    workers: Sequence[int] = (0, 2)
    worker: str = "workers"
    prefix: str = ""
    one_file: bool = True
    python: str = sys.executable
    version: str = ""
    figures: dict[str, dict[int, dict[str, float]]] = field(default_factory=lambda: {heat: {} for heat in HEATS})
    checked: dict[str, float] = field(default_factory=dict)
    has_failed: bool = False

    @property
    def is_ours(self) -> bool:
        return self.module == "ours_loader"

    @property
    def is_peer(self) -> bool:
        return not self.name.startswith("anyrecord") and self.module != "bare"

    def best(self, heat: str) -> tuple[int, dict[str, float]]:
        """The number of workers that was fastest, and its figures."""
        return min(self.figures[heat].items(), key=lambda pair: pair[1]["seconds"])

    def note(self, heat: str, workers: int, row: dict[str, float]) -> None:
        """Keeps the best of each figure."""
        old = self.figures[heat].setdefault(workers, row)
        self.figures[heat][workers] = {what: min(old[what], figure) for what, figure in row.items()}


def libraries(pictures: bool) -> list[Library]:
    """What is measured, without the libraries that are not installed."""
    ffrecord, array_record = "train.ffr", "train.array_record"
    ours = [
        Library("anyrecord Loader, FFRecord", "ours_loader", "torch", (0,), prefix=ffrecord),
        Library("anyrecord Loader, ArrayRecord", "ours_loader", "torch", (0,), prefix=array_record),
        Library("anyrecord FFRecord, torch DataLoader", "ours_dataloader", "torch", prefix=ffrecord),
        Library("anyrecord ArrayRecord, torch DataLoader", "ours_dataloader", "torch", prefix=array_record),
    ]
    others = [
        Library("array_record, torch DataLoader", "array_records", "array_record"),
        Library("Hugging Face datasets, torch DataLoader", "hugging_face", "datasets"),
        Library("Lance, torch DataLoader", "lance_rows", "lance"),
        Library("LitData", "lit", "litdata", one_file=False),
        Library("MosaicML Streaming", "mds", "streaming", one_file=False),
        Library("WebDataset", "wds", "webdataset", one_file=False),
        Library("SPDL", "spdl_threads", "spdl", (1, 2), "threads"),
        Library("FFCV, padded tensors", "ffcv_beton", "ffcv", (1, 2), "threads"),
    ]
    bare = [Library("decoding alone", "bare", "cv2", (0,))] if pictures else []
    return list(filter(placed, bare + ours + others))


def placed(library: Library) -> bool:
    """Finds a Python that has the library. anyrecord is in the one that runs."""
    python = python_with(library.package, here=not library.is_peer)
    if python is None:
        print(f"# {library.name} is left out, {library.package} is not installed: {INSTALL}")
        return False
    library.python = python
    return True


def main(run: Run) -> dict[str, Any] | None:
    """Prints a table for each kind of samples. Returns the figures by kind and library."""
    if python_with("torch", here=True) is None:
        print(f"PyTorch is missing: {INSTALL}\n")
        return None
    print("a shuffled epoch, delivered to the main process as lists of bytes or as tensors of pictures")
    print(f"each in a fresh process; best of {run.rounds} interleaved rounds; the better number of workers counts")
    print("cold: the files were removed from the page cache; disk MB: what was read from disk then")
    print("peak MB: memory of all processes without the page cache, PyTorch included")
    print("near: neighbours from within 1 % of the data set (1 % in a true shuffle)\n")
    found = {}
    for workload in WORKLOADS:
        if run.only in workload.name:
            found[workload.name] = measure(run, workload.job(10 if run.quick else 1), libraries(workload.pictures))
            report(workload.name, found[workload.name])
    return found


def measure(run: Run, job: Job, measured: list[Library]) -> dict[str, Any]:
    """Writes the data set in all formats, reads it with all libraries in interleaved rounds, and removes it."""
    jobs = {library.name: write(run, job, library) for library in measured}
    for turn in range(run.rounds):
        for heat in HEATS:
            for library in measured:
                known = library.figures[heat]
                for workers in [library.best(heat)[0]] if known and turn > 0 else library.workers:
                    epoch(run, library, replace(jobs[library.name], workers=workers), heat)
    for library in measured:
        if library.figures["warm"]:
            workers = library.best("warm")[0]
            check(library, replace(jobs[library.name], workers=workers))
    shutil.rmtree(run.folder / "data")
    done = [library for library in measured if all(library.figures.values()) and library.checked]
    return {"records": job.count, "batch": job.batch, "pictures": job.pictures, "rows": dict(map(row, done))}


def write(run: Run, job: Job, library: Library) -> Job:
    """Writes the data set. Libraries with the same format have a copy each, so that none warms the files of another."""
    folder = run.folder / "data" / library.name.replace(" ", "-")
    folder.mkdir(parents=True)
    shard_bytes = ONE_FILE if library.one_file else job.shard_bytes
    job = replace(job, prefix=library.prefix, folder=str(folder), shard_bytes=shard_bytes)
    attempt(library, "write", job)
    return job


def epoch(run: Run, library: Library, job: Job, heat: str) -> None:
    for path in job.files():
        if heat == "cold":
            make_cold(run, path)
        else:
            warm(path)
    before = disk_bytes()
    answer = attempt(library, "count", job)
    if answer is None:
        return
    if answer["samples"] < job.count:
        raise SystemExit(f"{library.name} delivered {answer['samples']} of {job.count} samples")
    library.version = answer["version"]
    # This process has waited for the child, so what the child has read is counted for it.
    row = {"seconds": answer["seconds"], "first": answer["first"], "disk": (disk_bytes() - before) / 1e6}
    library.note(heat, job.workers, row)


def check(library: Library, job: Job) -> None:
    """An epoch whose samples are all checked. Its time is not used, because memory is measured meanwhile."""
    task = "read" if library.module != "bare" else "count"
    answer = attempt(library, task, job, watch_memory=True)
    if answer is not None:
        library.checked = {what: answer[what] for what in ("peak", "near", "repeated") if what in answer}


def attempt(library: Library, task: str, job: Job, *, watch_memory: bool = False) -> dict[str, Any] | None:
    """What the child answers. None if another library fails: that is printed, and the others go on."""
    if library.has_failed:
        return None
    try:
        return ask(library.python, library.module, task, job, watch_memory=watch_memory)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        if not library.is_peer:
            raise
        library.has_failed = task == "write"
        print(f"# {library.name}, {job.workers} workers: {task} failed: {str(error)[-300:]}", flush=True)
        return None


def warm(path: Path) -> None:
    with open(path, "rb") as file:
        while file.read(1 << 22):
            pass


def row(library: Library) -> tuple[str, dict[str, Any]]:
    """The name and the figures of a library, as they are saved."""
    found: dict[str, Any] = {"version": library.version, **library.checked}
    found |= {"is_ours": library.is_ours, "is_peer": library.is_peer, "worker": library.worker}
    for heat in HEATS:
        workers, best = library.best(heat)
        tried = {str(count): figures["seconds"] for count, figures in library.figures[heat].items()}
        found[heat] = {**best, "workers": workers, "tried": tried}
    return library.name, found


def report(name: str, found: dict[str, Any]) -> None:
    title = f"{found['records']:,} samples, {name}, batches of {found['batch']}"
    show(title, columns(found), table(found))
    print(f"  {', '.join(dict.fromkeys(row['version'] for row in found['rows'].values()))}")
    for line in [*slow_starts(found), *compared(found)]:
        print(f"  {line}")
    print(flush=True)


def columns(found: dict[str, Any]) -> list[str]:
    return [*COLUMNS, *(["above decoding, warm", "above decoding, cold"] if found["pictures"] else [])]


def table(found: dict[str, Any]) -> list[tuple[str, list[str]]]:
    rows = found["rows"]
    bare = rows.get("decoding alone")
    shown = []
    for name, row in rows.items():
        cells = []
        for heat in HEATS:
            cells += [rate_text(found, row, heat), number(row[heat]["first"] * 1e3)]
        cells += [number(row["cold"]["disk"]), number(row["peak"]), f"{row['near']:.1%}" if "near" in row else "-"]
        if bare is not None:
            cells += [above(row, bare, heat, found["records"]) for heat in HEATS]
        shown.append((name, cells))
    return shown


def rate_text(found: dict[str, Any], row: dict[str, Any], heat: str) -> str:
    """Samples a second, and the number of workers if there was a choice."""
    text = f"{found['records'] / row[heat]['seconds']:,.0f}"
    return f"{text} ({row[heat]['workers']} {row['worker']})" if len(row[heat]["tried"]) > 1 else text


def above(row: dict[str, Any], bare: dict[str, Any], heat: str, records: int) -> str:
    """Microseconds a sample more than decoding alone."""
    if row is bare:
        return "-"
    return f"{(row[heat]['seconds'] - bare['warm']['seconds']) / records * 1e6:+.0f} us"


def slow_starts(found: dict[str, Any]) -> list[str]:
    """How fast libraries are after a first batch that was slow, such as one that waits for a compiler."""
    lines = []
    for name, row in found["rows"].items():
        first, seconds = row["warm"]["first"], row["warm"]["seconds"]
        if row["is_peer"] and first > SLOW_START:
            rate = (found["records"] - found["batch"]) / max(seconds - first, 1e-9)
            lines.append(f"{name}: after its first batch {rate:,.0f} samples/s, warm")
    return lines


FIGURES = {"samples/s": "seconds", "first batch": "first"}


def compared(found: dict[str, Any]) -> list[str]:
    """Our loaders beside the best of the other libraries in each cell, and the cells in which they are not first."""
    ours = {name: row for name, row in found["rows"].items() if row["is_ours"]}
    peers = {name: row for name, row in found["rows"].items() if row["is_peer"]}
    if not peers:
        return ["no other library is installed"]
    lines, behind = [], []
    for name, row in ours.items():
        ratios = []
        for cell, pick in cells_of(found).items():
            best = min(peers, key=lambda peer: pick(peers[peer]))
            ratio = pick(peers[best]) / pick(row)
            ratios.append(f"{cell} {times(ratio)} ({best.partition(',')[0]})")
            if ratio < 1:
                behind.append(f"{name}, {cell}: {times(ratio)}, behind {best}")
        lines.append(f"{name}, against the best of the others: {'; '.join(ratios)}")
    return [*lines, *(f"not first: {cell}" for cell in behind)] if behind else [*lines, "first in every cell"]


def cells_of(found: dict[str, Any]) -> dict[str, Any]:
    """What is compared: for each cell a function that picks a figure from a row. Less is better."""
    cells: dict[str, Any] = {}
    for heat in HEATS:
        for title, what in FIGURES.items():
            cells[f"{heat} {title}"] = lambda row, heat=heat, what=what: row[heat][what]
    return {**cells, "memory": lambda row: row["peak"]}


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    """Ours should be first in every cell."""
    for kind, of_kind in found.items():
        peers = [row for row in of_kind["rows"].values() if row["is_peer"]]
        for name, row in of_kind["rows"].items() if peers else ():
            for cell, pick in cells_of(of_kind).items() if row["is_ours"] else ():
                ratio = min(map(pick, peers)) / pick(row)
                yield Outcome(f"{kind}, {name}, {cell}, against the best of the others", ratio, 1.0)
