"""Ctrl-C ends a call that waits for a server, whatever the time budget is."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import fsspec
import pytest
from obstore.store import S3Store

from .files import bytes_of
from .interrupting import interrupted
from .places import credentials
from .servers import BUCKET, Played, faults

RECORDS = [bytes([i]) * 20_000 for i in range(60)]
PATIENT = {"read_timeout": "24h", "retry_timeout": "24h"}
"""A call that does not hear Ctrl-C never returns."""


def file_of() -> bytes:
    return bytes_of("ffrecord", RECORDS)


def store_of(server: Played) -> Any:
    """A store of obstore that is asked for bytes."""
    client: Any = {"allow_http": True, "timeout": "24h"}
    return S3Store(
        BUCKET,
        endpoint=server.endpoint,
        region="us-east-1",
        client_options=client,
        credential_provider=credentials,
    )


def file_system_of(server: Played) -> Any:
    return fsspec.filesystem("http", skip_instance_cache=True)


ASKED: dict[str, tuple[Any, Callable[[Played], Any], Callable[[Played, str], str]]] = {
    "obstore": ("s3", store_of, lambda server, key: key),
    "fsspec": ("http", file_system_of, lambda server, key: server.url(key)),
}
"""Objects that are asked for bytes: the protocol, the object, and the path of a file."""

OPENING: dict[str, Callable[[str, Any], object]] = {
    "open": lambda url, storage: anyrecord.open(url, storage=storage),
    "open many": lambda url, storage: anyrecord.open([url] * 40, storage=storage),
    "a pattern": lambda url, storage: anyrecord.open(url.replace("a.ffr", "*.ffr"), storage=storage),
    "shards": lambda url, storage: anyrecord.open(f"{url}@2", storage=storage),
    "info": lambda url, storage: anyrecord.info(url, storage=storage),
    "verify": lambda url, storage: anyrecord.verify(url, storage=storage),
    "convert": lambda url, storage: anyrecord.convert(url, "out.tfrecord", storage=storage),
    "salvage": lambda url, storage: anyrecord.salvage(url, storage=storage),
    "Folder": lambda url, storage: anyrecord.Folder(url, storage=storage),
}
READING: dict[str, Callable[[anyrecord.Records], object]] = {
    "one record": lambda records: records[50],
    "a batch": lambda records: records[[59, 10, 30]],
    "iteration": lambda records: list(records),
    "batches": lambda records: list(records.batches(7)),
    "packed": lambda records: records.read_packed([59, 10, 30]),
    "packed batches": lambda records: list(records.batches(7, packed=True)),
    "shuffle": lambda records: list(records.shuffle(seed=1)),
}


@pytest.mark.parametrize("name", OPENING)
def test_opening_hears_ctrl_c(name: str) -> None:
    with Played({"a.ffr": file_of()}) as server:
        server.play(faults.stall())
        interrupted(lambda: server.requests, lambda: OPENING[name](server.url("a.ffr"), {**server.storage, **PATIENT}))
    assert not Path("out.tfrecord").exists()


@pytest.mark.parametrize("name", READING)
def test_reading_hears_ctrl_c_and_goes_on_after_it(name: str) -> None:
    with Played({"a.ffr": file_of()}) as server:
        records = anyrecord.open(server.url("a.ffr"), storage={**server.storage, **PATIENT})
        server.clear()
        server.play(faults.stall())
        interrupted(lambda: server.requests, lambda: READING[name](records))
        server.clear()
        assert records[50] == RECORDS[50]


def test_reading_hears_ctrl_c_while_bytes_come() -> None:
    record = bytes(4_000_000)
    out = io.BytesIO()
    with anyrecord.create(out, format="ffrecord") as writer:
        writer.write_many([bytes(200_000), record])
    # If Ctrl-C were not heard, the record would take more than an hour.
    with Played({"a.ffr": out.getvalue()}, bytes_per_second=1e9) as server:
        records = anyrecord.open(server.url("a.ffr"), storage={**server.storage, **PATIENT})
        server.clear()
        server.play(faults.slow(1000))
        interrupted(lambda: server.requests, lambda: records[1])


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize("name", [name for name in OPENING if name != "open many"])
def test_opening_with_an_object_hears_ctrl_c(kind: str, name: str) -> None:
    if kind == "fsspec" and name in ("a pattern", "shards"):
        return  # a web server has no listings
    protocol, make, path = ASKED[kind]
    with Played({"a.ffr": file_of()}, protocol=protocol) as server:
        server.play(faults.stall())
        storage = make(server)
        interrupted(lambda: server.requests, lambda: OPENING[name](path(server, "a.ffr"), storage))


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize("name", READING)
def test_reading_with_an_object_hears_ctrl_c_and_goes_on_after_it(kind: str, name: str) -> None:
    protocol, make, path = ASKED[kind]
    with Played({"a.ffr": file_of()}, protocol=protocol) as server:
        records = anyrecord.open(path(server, "a.ffr"), storage=make(server))
        server.clear()
        server.play(faults.stall())
        interrupted(lambda: server.requests, lambda: READING[name](records))
        server.clear()
        assert records[50] == RECORDS[50]


def test_a_process_ends_though_a_store_waits() -> None:
    program = """
import os, signal, sys, threading
import anyrecord
from obstore.store import MemoryStore
from anyrecord._waiting import result_of
import asyncio
store = MemoryStore()
store.put("a", b"")
started = threading.Event()
async def stall():
    started.set()
    await asyncio.Event().wait()
def interrupt():
    started.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    result_of(stall)
except KeyboardInterrupt:
    print("heard")
threading.Thread(target=lambda: result_of(stall), daemon=True).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n", "")


def test_what_runs_at_the_end_of_a_process_gets_an_error_from_a_store_instead_of_waiting() -> None:
    program = """
import atexit
from anyrecord._waiting import result_of
async def answer():
    return 5
def late():
    try:
        result_of(answer)
    except RuntimeError as error:
        print(error)
atexit.register(late)  # runs after what is registered later
print(result_of(answer))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    ending = "the program is ending, so nothing can be read from a store any more"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"5\n{ending}\n", "")
