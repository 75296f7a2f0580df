"""A shuffled epoch from an object store: anyrecord beside libraries that download shards, over a link that is slow.

The store is a real S3 server on this machine. All clients talk to a proxy that delays every round trip and limits the
bytes a second, and that counts bytes and requests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benches.far_store import BYTES_PER_SECOND, ROUND_TRIP_MILLISECONDS, FarStore, far_store, server_program
from benches.goals import LINK_BYTES, LINK_SHARE, times, verdict
from benches.libraries import link
from benches.libraries.job import Job
from benches.libraries.ours import shuffle_options
from benches.libraries.processes import ask, python_with
from benches.outcomes import Outcome
from benches.results import Run
from benches.tables import number, show

SIZES = {"100 KB": (100_000, 1_000_000_000), "4 KB": (4_000, 500_000_000)}
"""The bytes of a sample, and about how many bytes there are altogether."""
FULL_FROM = 32_000
"""Samples of at least so many bytes are read in a full shuffle too. Smaller ones would be a request each."""
SHARD_BYTES = 64_000_000
WORKERS = (0, 2, 4)
"""Worker processes of the other libraries. The first round tries all, the others only the fastest."""
INSTALL = "make bench-remote installs what is missing"
LINK = f"the link itself, {link.CONNECTIONS} connections"
COLUMNS = ("records/s", "MB/s", "of the link", "bytes", "requests/GB", "CPU s/GB", "near", "anyrecord is")


@dataclass
class Loader:
    """A library, a format, and the figures of its best round."""

    name: str
    module: str
    prefix: str
    package: str
    workers: tuple[int, ...] = (0,)
    python: str = sys.executable
    full_shuffle: bool = False
    best: dict[str, float] = field(default_factory=dict)
    version: str = ""

    @property
    def is_ours(self) -> bool:
        return self.module == "ours"


def loaders(job: Job) -> list[Loader]:
    ours = [
        Loader(f"anyrecord {format}, {order}", "ours", prefix, "anyrecord", full_shuffle=full_shuffle)
        for order, full_shuffle in (("blocks", False), ("full shuffle", True))
        for format, prefix in (("ffrecord", "anyrecord.ffr"), ("array_record", "anyrecord.array_record"))
        if not full_shuffle or job.sample_bytes >= FULL_FROM
    ]
    others = [
        Loader("MosaicML Streaming", "mds", "mds", "streaming", WORKERS),
        Loader("LitData", "lit", "litdata", "litdata", WORKERS),
        Loader("WebDataset", "wds", "webdataset", "webdataset", WORKERS),
    ]
    return ours + [found for loader in others if (found := placed(loader))]


def placed(loader: Loader) -> Loader | None:
    """The loader with a Python that has its package."""
    python = python_with(loader.package)
    if python is None:
        print(f"# {loader.name} is not installed: {INSTALL}")
        return None
    loader.python = python
    return loader


def main(run: Run) -> dict[str, Any] | None:
    """Prints a table for each size and the goals. Returns the figures by size and library."""
    server = server_program()
    if server is None or shutil.which("cargo") is None or shutil.which("curl") is None:
        print(f"s3s-fs, cargo or curl is missing: {INSTALL}\n")
        return None
    print(
        f"an S3 server behind a link with a round trip of {ROUND_TRIP_MILLISECONDS} ms and "
        f"{BYTES_PER_SECOND / 1e6:.0f} MB/s; each library in a process of its own"
    )
    print("a shuffled epoch, timed from opening the data set to its last record; every record is checked to arrive")
    print("of the link: bytes of records a second; bytes: what came over the link, in multiples of the records")
    print("the other libraries shuffle shards or what is in a buffer; they are compared with our slowest row")
    print("CPU: of the client and its workers; near: neighbours within 1 % of the data set (1 % in a full shuffle)")
    print(f"other libraries have an empty local cache, and the best of {WORKERS} worker processes counts\n")
    found = {}
    with far_store(run.folder / "store", server) as store:
        for name, (sample_bytes, total) in SIZES.items():
            if run.only in name:
                found[name] = measure(run, store, name, sample_bytes, total // (10 if run.quick else 1))
    return found


def measure(run: Run, store: FarStore, name: str, sample_bytes: int, total: int) -> dict[str, Any]:
    shard_bytes = SHARD_BYTES // (8 if run.quick else 1)
    job = Job("", total // sample_bytes, sample_bytes, shard_bytes, store.endpoint, "")
    busy = os.getloadavg()[0]
    all_loaders = loaders(job)
    objects: dict[str, dict[str, int]] = {}
    for loader in all_loaders:
        if loader.prefix not in objects:
            objects[loader.prefix] = write(run, store, loader, job)
    alone: dict[str, float] = {}
    for turn in range(run.rounds):
        keep_best(alone, link_alone(store, job, objects[all_loaders[0].prefix]))
        for loader in all_loaders:
            tried = loader.workers if turn == 0 else [int(loader.best["workers"])] if loader.best else []
            for workers in tried:
                keep_best(loader.best, read(run, store, loader, job, workers))
    for prefix in objects:
        store.remove(prefix)
    measured = [loader for loader in all_loaders if loader.best]
    found: dict[str, Any] = {
        "records": job.count,
        "record_bytes": sample_bytes,
        "load": [busy, os.getloadavg()[0]],
        "link": alone,
        "rows": {loader.name: {"version": loader.version, **loader.best} for loader in measured},
    }
    report(name, job, found, measured)
    return found


def keep_best(best: dict[str, float], row: dict[str, float] | None) -> None:
    if row is not None and row["seconds"] < best.get("seconds", float("inf")):
        best.update(row)


def write(run: Run, store: FarStore, loader: Loader, job: Job) -> dict[str, int]:
    """Writes the data set in the format of a library. Returns the keys and sizes of its objects."""
    folder = run.folder / "written"
    folder.mkdir()
    ask(loader.python, loader.module, "write", placed_in(job, loader, folder))
    return store.upload(folder, loader.prefix)


def read(run: Run, store: FarStore, loader: Loader, job: Job, workers: int) -> dict[str, float] | None:
    """Reads the data set once. None if the library fails: that is printed, and the others go on."""
    folder = run.folder / "cache"
    folder.mkdir()
    store.counts()
    try:
        answer = ask(loader.python, loader.module, "read", placed_in(job, loader, folder, workers))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        if loader.is_ours:
            raise
        print(f"# {loader.name} with {workers} workers failed: {str(error)[-300:]}", flush=True)
        return None
    finally:
        shutil.rmtree(folder)
    received, requests = store.counts()
    loader.version = answer.pop("version")
    return figures(job, {**answer, "workers": workers}, received, requests)


def link_alone(store: FarStore, job: Job, objects: dict[str, int]) -> dict[str, float]:
    store.counts()
    begin = time.perf_counter()
    link.fetch(store.endpoint, objects)
    return figures(job, {"seconds": time.perf_counter() - begin}, *store.counts())


def figures(job: Job, row: dict[str, float], received: int, requests: int) -> dict[str, float]:
    total = job.count * job.sample_bytes
    rate = total / row["seconds"]
    return {
        **row,
        "rate": job.count / row["seconds"],
        "MB/s": rate / 1e6,
        "share": rate / BYTES_PER_SECOND,
        "bytes": received / total,
        "requests": requests / total * 1e9,
    }


def placed_in(job: Job, loader: Loader, folder: Path, workers: int = 0) -> Job:
    return replace(job, prefix=loader.prefix, folder=str(folder), workers=workers, full_shuffle=loader.full_shuffle)


def report(name: str, job: Job, found: dict[str, Any], measured: list[Loader]) -> None:
    total = job.count * job.sample_bytes
    least = slowest_of_ours(found["rows"])
    shuffle = shuffle_options(job)
    how = f"windows of {shuffle['window']} blocks of {shuffle['block']} records"
    title = f"{job.count:,} records of {name}, {total / 1e6:,.0f} MB in shards of {job.shard_bytes / 1e6:.0f} MB"
    show(f"{title}; anyrecord: {how}", COLUMNS, table(found))
    versions = ", ".join(dict.fromkeys(loader.version for loader in measured))
    print(f"  {versions}; load of the machine before and after: {found['load'][0]:.1f}, {found['load'][1]:.1f}")
    for loader in measured:
        if loader.is_ours:
            share, received = loader.best["share"], loader.best["bytes"]
            of_link = goal(share >= LINK_SHARE, f"at least {LINK_SHARE:.0%} of the link")
            of_bytes = goal(received <= LINK_BYTES, f"at most {times(LINK_BYTES)} the bytes")
            print(f"  {loader.name}: {of_link} {share:.0%}; {of_bytes} {received:.3f}x")
        else:
            print(f"  against {loader.name}: {verdict(least / loader.best['rate'], 1.0)}")
    print(flush=True)


def goal(is_reached: bool, what: str) -> str:
    return f"goal {what}: {'reached' if is_reached else 'missed,'}"


def table(found: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The rows of the table: the link itself, then the libraries."""
    gigabytes = found["records"] * found["record_bytes"] / 1e9
    least = slowest_of_ours(found["rows"])
    rows = [(LINK, cells(found["link"], gigabytes, None))]
    for name, row in found["rows"].items():
        is_ours = name.startswith("anyrecord")
        title = name if is_ours else f"{name}, {row['workers']} workers"
        rows.append((title, cells(row, gigabytes, None if is_ours else least / row["rate"])))
    return rows


def slowest_of_ours(rows: dict[str, dict[str, Any]]) -> float:
    """The records a second of our slowest row. The other libraries are compared with it."""
    rate: float = min(row["rate"] for name, row in rows.items() if name.startswith("anyrecord"))
    return rate


def cells(row: dict[str, Any], gigabytes: float, ratio: float | None) -> list[str]:
    return [
        f"{row['rate']:,.0f}",
        number(row["MB/s"]),
        f"{row['share']:.0%}",
        f"{row['bytes']:.3f}x",
        f"{row['requests']:,.0f}",
        number(row["cpu"] / gigabytes) if "cpu" in row else "-",
        f"{row['near']:.1%}" if "near" in row else "-",
        f"{times(ratio)} as fast" if ratio else "-",
    ]


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    for size, of_size in found.items():
        least = slowest_of_ours(of_size["rows"])
        for name, row in of_size["rows"].items():
            if name.startswith("anyrecord"):
                yield Outcome(f"{size}, {name}: of the link", row["share"], LINK_SHARE, unit="%")
                yield Outcome(f"{size}, {name}: bytes over the link", row["bytes"], LINK_BYTES, is_most=True)
            else:
                yield Outcome(f"{size}: our slowest row, against {name}", least / row["rate"], 1.0)
