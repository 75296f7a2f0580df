"""What a `ShardQueue` costs: 10,000 shards of 1,000,000 records each, and 1,000 workers.

The plan is real: it is of 10^10 records, one file that is concatenated 10,000 times. The workers are simulated: they
run the real code of the queue in simulated time. The rates of the stores are measured on this machine.
"""

from __future__ import annotations

import os
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from sys import getsizeof
from typing import Any

import anyrecord
from anyrecord._shard_store import as_store

from benches.results import Run
from benches.simulated_workers import CountingStore, Job, simulate
from benches.tables import number, show
from checks.shard_servers import SERVERS, RayServer

SHARDS = 10_000
RECORDS_PER_SHARD = 1_000_000
WHYS = ("start", "claim", "renew", "complete", "wait")
STORES = {"tcp": "torch TCPStore", "redis": "Redis", "ray": "Ray actor"}
VALUE_BYTES = 2_000
"""About the size of a value in this job."""


def main(run: Run) -> dict[str, Any]:
    """Prints the costs of planning, claiming and renewing, and what the stores can do. Returns these."""
    shards = SHARDS // 10 if run.quick else SHARDS
    job = Job(workers=100) if run.quick else Job()
    found: dict[str, Any] = {"shards": shards, "workers": job.workers, "plan": planning(run.folder, shards)}
    found["queue"] = working(found["plan"].pop("made"), job)
    found["stores"] = {name: rate(name, run) for name in STORES}
    report(found, job)
    return found


def planning(folder: Path, shards: int) -> dict[str, Any]:
    """Times a plan, and measures its memory."""
    path = folder / "million.array_record"
    with anyrecord.create(path, group_size=1000) as out:
        out.write_many(b"%d" % i for i in range(RECORDS_PER_SHARD))
    records = anyrecord.concat([anyrecord.open(path)] * shards)
    before = resident_bytes()
    began = time.perf_counter()
    made = anyrecord.ShardPlan(records, seed=1, shard_records=RECORDS_PER_SHARD)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    lengths = {len(made[i]) for i in range(0, shards, 10)}
    assert (len(made), lengths) == (shards, {RECORDS_PER_SHARD})
    each = (time.perf_counter() - began) / len(range(0, shards, 10))
    return {
        "seconds": seconds,
        "shard_seconds": each,
        "bytes": max(0, resident_bytes() - before),
        "records": len(records),
        "made": made,
    }


def working(plan: anyrecord.ShardPlan, job: Job) -> dict[str, Any]:
    """Simulates the workers."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    anyrecord.ShardQueue(plan, anyrecord.MemoryStore())
    queue_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    began = time.perf_counter()
    store, ended = simulate(plan, job)
    took = time.perf_counter() - began
    watched = max((queue.watched_most for queue in ended["queues"]), key=len)
    steady = [count for second, count in store.per_second.items() if second < ended["last_claim"]]
    tail = [count for second, count in store.per_second.items() if second >= ended["last_claim"]]
    return {
        "seconds": ended["seconds"],
        "last_claim": ended["last_claim"],
        "requests": dict(store.requests),
        "conflicts": dict(store.conflicts),
        "per_second": sum(steady) / max(1, len(steady)),
        "most_per_second": max(steady),
        "tail_per_second": max(tail, default=0),
        "sent_bytes": store.sent_bytes,
        "received_bytes": store.received_bytes,
        "largest_value": store.largest_value,
        "store_bytes": stored_bytes(store),
        "queue_bytes": queue_bytes,
        "watched": len(watched),
        "watched_bytes": sizes_of(watched),
        "simulation_seconds": took,
    }


def sizes_of(watched: dict[Any, Any]) -> int:
    """The memory of a dict of tuples of numbers."""
    inner = sum(getsizeof(key) + getsizeof(row) + sum(map(getsizeof, row)) for key, row in watched.items())
    return getsizeof(watched) + inner


def stored_bytes(store: CountingStore) -> int:
    """How much the store holds at the end, keys and values."""
    return sum(len(key) + len(value) for key, value in store._store._values.items())


def resident_bytes() -> int:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def rate(name: str, run: Run) -> dict[str, float]:
    """Changes a second that one client makes on a store: a `get` and a `compare_set`, one after the other."""
    folder = run.folder / name
    folder.mkdir()
    try:
        with SERVERS[name](folder) as server:
            store = as_store(server.connect(server.address))
            best = 0.0
            for _ in range(run.rounds):
                count, began = 0, time.perf_counter()
                while (took := time.perf_counter() - began) < (0.3 if run.quick else 1.0):
                    old = store.get("rate")
                    assert store.compare_set("rate", old, b"%020d" % time.perf_counter_ns() + b"." * VALUE_BYTES)
                    count += 1
                best = max(best, count / took)
            found = {"requests": 2 * best}
            if isinstance(server, RayServer):
                found["requests_of_many"] = requests_at_once(server)
            return found
    except (ImportError, FileNotFoundError) as error:
        print(f"# {STORES[name]} is left out: {error}")
        return {}


def requests_at_once(server: RayServer) -> float:
    """Requests a second that the actor answers if there are always some for it to answer."""
    import ray

    count = 3000
    began = time.perf_counter()
    ray.get([server.actor.get.remote("rate") for _ in range(count)])
    return count / (time.perf_counter() - began)


def report(found: dict[str, Any], job: Job) -> None:
    plan, queue = found["plan"], found["queue"]
    rows = [
        (f"a plan of {found['shards']:,} shards, {plan['records']:,} records", [seconds(plan["seconds"])]),
        ("memory of the plan", [size(plan["bytes"])]),
        ("one shard of it", [seconds(plan["shard_seconds"])]),
        ("memory of a queue in a worker", [size(queue["queue_bytes"])]),
        (f"and of {queue['watched']:,} leases that it watches while it waits", [size(queue["watched_bytes"])]),
        ("what the store holds, at the end", [size(queue["store_bytes"])]),
        ("largest value", [size(queue["largest_value"])]),
        ("requests a second until the last shard is claimed", [number(queue["per_second"])]),
        ("most requests in one second until then", [number(queue["most_per_second"])]),
        ("most requests in one second after that", [number(queue["tail_per_second"])]),
        ("the job takes", [seconds(queue["seconds"])]),
        ("the last shard is claimed after", [seconds(queue["last_claim"])]),
    ]
    show(f"{job.workers:,} workers, {job.shard_seconds:g} s a shard, leases of {job.lease_seconds:g} s", [""], rows)
    asked: Counter[str] = Counter()
    for what, count in queue["requests"].items():
        asked[what.split()[1]] += count
    calls = {"start": job.workers, "claim": found["shards"], "complete": found["shards"]}
    rows = []
    for why in WHYS:
        changes = queue["requests"].get(f"compare_set {why}", 0)
        conflicts = queue["conflicts"].get(why, 0)
        calls.setdefault(why, changes - conflicts)
        each = asked[why] / calls[why] if calls[why] else None
        rows.append((why, [f"{calls[why]:,}", f"{asked[why]:,}", number(each), f"{conflicts:,}"]))
    show("requests of the whole job", ["calls", "requests", "for each", "conflicts"], rows)
    rows = []
    for name, row in found["stores"].items():
        if row:
            needed = f"{100 * queue['per_second'] / row['requests']:.1f} %"
            rows.append((STORES[name], [number(row["requests"]), needed, number(row.get("requests_of_many"))]))
    columns = ["one client", "this job needs", "many clients"]
    show("requests a second here, and how much of what one client does this job needs", columns, rows)


def seconds(figure: float) -> str:
    """A time, with a unit.

    >>> seconds(0.00012), seconds(0.25), seconds(600)
    ('120 us', '250 ms', '600 s')
    """
    if figure < 0.001:
        return f"{figure * 1e6:.0f} us"
    return f"{figure * 1e3:.0f} ms" if figure < 1 else f"{figure:.0f} s"


def size(count: float) -> str:
    """A size, with a unit.

    >>> size(900), size(130_000), size(2_500_000)
    ('900 bytes', '130 KB', '2.5 MB')
    """
    if count < 1000:
        return f"{count:.0f} bytes"
    return f"{count / 1e3:.0f} KB" if count < 1e6 else f"{count / 1e6:.1f} MB"
