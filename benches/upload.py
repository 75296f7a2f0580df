"""Writing to an object store: `create` with a URL, beside writing local files and uploading them with another client.

The store is a real S3 server on this machine, without any delay. Each way runs in a process of its own and writes the
same records with the same options, so all of them store the same bytes; that is checked.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.children import ask
from benches.far_store import near_store, server_program
from benches.goals import times, verdict
from benches.libraries import ours
from benches.libraries.job import ACCESS_KEY, BUCKET, REGION, SECRET_KEY
from benches.outcomes import Outcome
from benches.results import Run
from benches.tables import number, show

SIZES = {"4 KB": 4_000, "100 KB": 100_000}
TOTAL_BYTES = 500_000_000
SHARDS = {"one file": None, "8 shards": 8}
FORMATS: dict[str, dict[str, Any]] = {".ffr": {}, ".array_record": {"codec": "none", "group_size": 1}}
GOAL = 1.0
"""As fast as the faster of the other ways, at least."""
COLUMNS = ("seconds", "of it uploading", "MB/s", "CPU s", "peak MB", "anyrecord is")

WRITE = """
import glob, itertools, os, random, resource
from concurrent.futures import ThreadPoolExecutor
import anyrecord

job = json.loads(sys.argv[1])
target, suffix, shards, size, count, endpoint, options, storage, bucket, access, secret, region = job
pool = random.Random(7).randbytes(8_000_000 + size)
starts = [at * 7919 % 8_000_000 for at in range(max(1, 8_000_000 // size))]
batch = [pool[start : start + size] for start in starts]

def write(path, **io):
    with anyrecord.create(path, shards=shards, num_records=count, **options, **io) as out:
        for start in range(0, count, len(batch)):
            out.write_many(batch[: count - start])

def local():
    folder = os.path.join(target, "local")
    os.makedirs(folder)
    write(os.path.join(folder, "train" + suffix), durable=False)
    return sorted(glob.glob(os.path.join(folder, "*")))

def each(upload, paths):
    # Several files at once, as a user would do it who has several.
    with ThreadPoolExecutor(len(paths)) as threads:
        list(threads.map(upload, paths))

def clock():
    return time.perf_counter()

def done(begin, uploading):
    used = resource.getrusage(resource.RUSAGE_SELF)
    now = clock()
    answer(
        seconds=now - begin, uploading=now - uploading, cpu=used.ru_utime + used.ru_stime, peak=memory()["VmHWM"]
    )
"""

WAYS = {
    "anyrecord, to the store": """
begin = clock()
write(f"s3://{bucket}/train{suffix}", storage=storage)
done(begin, begin)
""",
    "local files, then boto3": """
import boto3
client = boto3.client("s3", endpoint_url=endpoint, region_name=region, aws_access_key_id=access,
                      aws_secret_access_key=secret)
begin = clock()
paths = local()
uploading = clock()
each(lambda path: client.upload_file(path, bucket, os.path.basename(path)), paths)
done(begin, uploading)
""",
    "local files, then obstore": """
import obstore, pathlib
from obstore.store import S3Store
store = S3Store(bucket, endpoint=endpoint, region=region, access_key_id=access, secret_access_key=secret,
                client_options={"allow_http": True})
begin = clock()
paths = local()
uploading = clock()
each(lambda path: obstore.put(store, os.path.basename(path), pathlib.Path(path)), paths)
done(begin, uploading)
""",
    "local files only": """
begin = clock()
local()
done(begin, clock())
""",
}
OURS, LOCAL = "anyrecord, to the store", "local files only"
NEEDS = {"local files, then boto3": "boto3", "local files, then obstore": "obstore"}


@dataclass
class Case:
    """Records of one size in one format, in one file or in several."""

    name: str
    suffix: str
    shards: int | None
    size: int
    count: int
    best: dict[str, dict[str, float]] = field(default_factory=dict)
    digests: set[str] = field(default_factory=set)
    """Of what each way stored."""


def main(run: Run) -> dict[str, Any] | None:
    """Prints a table for each case. Returns the figures by case and way."""
    server = server_program()
    if server is None:
        print("s3s-fs is missing: make bench-remote installs it\n")
        return None
    print("an S3 server on this machine, without delay; each way in a process of its own, the best round counts")
    print("seconds: from the first record to the last object; CPU: of the writing process, not of the server")
    print("the other ways write local files in the page cache, which are not synced, and upload all of them at once\n")
    total = TOTAL_BYTES // (10 if run.quick else 1)
    found = {}
    for size_name, size in SIZES.items():
        for suffix in FORMATS:
            for kind, shards in SHARDS.items():
                name = f"{size_name}, {suffix.lstrip('.')}, {kind}"
                if run.only in name:
                    found[name] = measure(run, server, Case(name, suffix, shards, size, total // size))
    return found


def measure(run: Run, server: str, case: Case) -> dict[str, Any]:
    ways = [way for way in WAYS if way not in NEEDS or importlib.util.find_spec(NEEDS[way])]
    for way in WAYS.keys() - set(ways):
        print(f"# {NEEDS[way]} is not installed")
    busy = os.getloadavg()[0]
    with near_store(run.folder / "store", server) as port:
        for _ in range(run.rounds):
            for way in ways:
                row = once(run, case, way, port)
                if row["seconds"] < case.best.get(way, {"seconds": float("inf")})["seconds"]:
                    case.best[way] = row
    shutil.rmtree(run.folder / "store")
    if len(case.digests) != 1:
        raise SystemExit(f"{case.name}: the ways did not store the same bytes")
    found = {"records": case.count, "load": [busy, os.getloadavg()[0]], "rows": case.best}
    report(case, found)
    return found


def once(run: Run, case: Case, way: str, port: int) -> dict[str, float]:
    folder = run.folder / "once"
    folder.mkdir()
    endpoint = f"http://127.0.0.1:{port}"
    options = FORMATS[case.suffix]
    job = [str(folder), case.suffix, case.shards, case.size, case.count, endpoint, options, ours.storage(endpoint)]
    try:
        row: dict[str, float] = ask(WRITE + WAYS[way], json.dumps([*job, BUCKET, ACCESS_KEY, SECRET_KEY, REGION]))
    finally:
        shutil.rmtree(folder)
    stored = run.folder / "store" / BUCKET
    if way != LOCAL:
        case.digests.add(digest(stored))
    for path in stored.iterdir():
        path.unlink()
    row["MB/s"] = case.count * case.size / row["seconds"] / 1e6
    return row


def digest(folder: Path) -> str:
    """Of the names and bytes of all files."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        found.update(path.name.encode())
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


def report(case: Case, found: dict[str, Any]) -> None:
    mine = case.best[OURS]["seconds"]
    rows = []
    for way, row in case.best.items():
        ratio = "-" if way in (OURS, LOCAL) else f"{times(row['seconds'] / mine)} as fast"
        uploading = "-" if way in (OURS, LOCAL) else number(row["uploading"])
        rows.append(
            (
                way,
                [
                    number(row["seconds"]),
                    uploading,
                    number(row["MB/s"]),
                    number(row["cpu"]),
                    f"{row['peak']:,.0f}",
                    ratio,
                ],
            )
        )
    show(f"{case.count:,} records of {case.name}: {case.count * case.size / 1e6:,.0f} MB", COLUMNS, rows)
    others = [row["seconds"] for way, row in case.best.items() if way not in (OURS, LOCAL)]
    if others:
        print(f"  against the faster of the others: {verdict(min(others) / mine, GOAL)}")
    print(f"  load of the machine before and after: {found['load'][0]:.1f}, {found['load'][1]:.1f}\n", flush=True)


def outcomes(found: dict[str, Any]) -> Iterator[Outcome]:
    for name, of_case in found.items():
        others = [row["seconds"] for way, row in of_case["rows"].items() if way not in (OURS, LOCAL)]
        if others:
            ratio = min(others) / of_case["rows"][OURS]["seconds"]
            yield Outcome(f"{name}, against the faster of the others", ratio, GOAL)
