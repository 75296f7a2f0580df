"""Ctrl-C ends a writer that waits for a store, whatever the time budget is. Nothing half-written is left."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Literal

import anyrecord
import pytest

from .interrupting import interrupted
from .servers import Played, faults
from .servers.operations import Operation

pytestmark = pytest.mark.filterwarnings("ignore:opening searched")
PATIENT: dict[str, Any] = {"read_timeout": "24h", "retry_timeout": "24h", "upload_part_size": 5 << 20}
"""A call that does not hear Ctrl-C never returns."""
SMALL, LARGE = [b"small"] * 10, [bytes([number]) * 1_000_000 for number in range(12)]


def write(server: Played, records: list[bytes], **options: Any) -> None:
    storage = {**server.storage, **PATIENT, **options.pop("storage", {})}
    with anyrecord.create(server.url("d/a.tfrecord"), storage=storage, **options) as out:
        out.write_many(records)


STALLS = {"in the request": faults.stall_in_request(0.5), "before the answer": faults.stall()}
CALLS: dict[str, tuple[Operation, list[bytes], dict[str, Any]]] = {
    "the look at the name": ("head", SMALL, {}),
    "one request": ("put", SMALL, {}),
    "the beginning": ("begin", LARGE, {}),
    "a part": ("part", LARGE, {}),
    "the completion": ("complete", LARGE, {}),
    "the beginning of a set": ("begin", SMALL, {"shards": 2}),
    "a part of a set": ("part", LARGE, {"shards": 2}),
    "the journal": ("put", SMALL, {"shards": 2}),
}


@pytest.mark.parametrize("fault", STALLS)
@pytest.mark.parametrize("name", CALLS)
def test_a_writer_hears_ctrl_c_and_leaves_nothing(name: str, fault: str) -> None:
    operation, records, options = CALLS[name]
    with Played({"other": b"x"}) as server:
        rule = server.play(STALLS[fault], operation=operation, times=1)
        interrupted(lambda: rule.played, lambda: write(server, records, **options))
        is_done = fault == "before the answer" and operation in ("put", "complete")
        if not is_done:
            assert server.names() == ["other"]
        elif name != "the journal":
            assert set(server.names()) <= {"other", "d/a.tfrecord"}
        parts = [upload for upload in server.objects.uploads.values() if upload.parts]
        assert parts == []
        # A later writer succeeds.
        if name == "the journal" and is_done:
            anyrecord.recover(server.url("d/a.tfrecord"), keep="old", storage=server.storage)
        write(server, records, overwrite=True, **options)
        found = anyrecord.open(server.url("d/a*.tfrecord"), storage=server.storage)
        assert sorted(found) == sorted(records)


@pytest.mark.parametrize("keep", ["old", "new"])
@pytest.mark.parametrize("operation", ["complete", "delete"])
def test_ctrl_c_while_a_set_gets_its_names(operation: Operation, keep: Literal["old", "new"]) -> None:
    """It can be finished, or undone. Whoever does not hear it gives up after a minute, and leaves no journal."""
    storage = {"read_timeout": "10s", "max_retries": "0"}
    with Played() as server:
        rule = server.play(faults.stall_in_request(), operation=operation, times=1)
        interrupted(lambda: rule.played, lambda: write(server, SMALL, shards=2, storage=storage))
        assert len([name for name in server.names() if name.endswith(".publish")]) == 1
        anyrecord.recover(server.url("d/a.tfrecord"), keep=keep, storage=server.storage)
        assert len(server.names()) == (2 if keep == "new" else 0)
        assert server.uploads() == []


def test_a_writer_that_waits_for_memory_hears_ctrl_c() -> None:
    """The store takes no part. The memory for others is used up."""
    with Played() as server:
        rule = server.play(faults.stall_in_request(0.5), operation="part")
        storage = {"upload_memory": 20 << 20}
        interrupted(lambda: rule.played, lambda: write(server, LARGE * 20, storage=storage))
        assert (server.names(), server.uploads()) == ([], [])


BLOCKED = """if True:
    import json, sys, threading, anyrecord
    out = anyrecord.create(sys.argv[1], storage=json.loads(sys.argv[2]))
    def write():
        for _ in range(300):
            out.write(bytes(1_000_000))
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    before = -1
    while out.num_bytes != before or not before:  # until it waits
        before = out.num_bytes
        thread.join(0.5)
"""


def test_a_process_ends_though_a_thread_of_it_waits_in_a_writer() -> None:
    with Played() as server:
        server.play(faults.stall_in_request(0.5), operation="part")
        storage = {
            **server.storage,
            **{name: str(value) for name, value in PATIENT.items()},
            "upload_memory": "16000000",
        }
        url = server.url("d/a.tfrecord")
        ended = subprocess.run(
            [sys.executable, "-c", BLOCKED, url, json.dumps(storage)], capture_output=True, text=True, timeout=300
        )
        assert ended.returncode == 0
        assert "still open at the end of the program" in ended.stderr
        assert server.names() == []
