"""How objects are uploaded: conditions, checksums, lost answers, aborts, memory, Ctrl-C and processes."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import anyrecord
import pytest
from anyrecord import _core

from .files import bytes_of
from .interrupting import interrupted
from .servers import Played, faults
from .servers.faults import Exchange, Fault
from .servers.messages import Response
from .test_interrupts import PATIENT

PROTOCOLS: list[Any] = ["s3", "gcs", "azure"]
SMALL = 5 << 20
BLOCK = random.Random(1).randbytes(3 << 20)
FEW = [b"one", b"", b"three"]
MANY = [BLOCK[number:] for number in range(6)]
SIZES = {"one part": FEW, "many parts": MANY}
UNSIGNED = {"aws_unsigned_payload": True}
"""S3 compares the bytes itself, unless the signature does not cover them."""
QUICK = {"init_backoff": "1ms", "max_backoff": "1ms", "upload_part_size": SMALL}


def write(server: Played, records: list[bytes], key: str = "a.ffr", **options: Any) -> None:
    overwrite = options.pop("overwrite", False)
    storage = {**server.storage, **QUICK, **options}
    with anyrecord.create(server.url(key), storage=storage, num_records=len(records), overwrite=overwrite) as out:
        out.write_many(records)


def left(server: Played) -> list[str]:
    """The uploads that are left. Those of Azure cannot be deleted."""
    return [] if server.scheme == "az" else server.uploads()


def is_there(server: Played, records: list[bytes], key: str = "a.ffr") -> bool:
    return server.get(key) == bytes_of("ffrecord", records)


@pytest.mark.parametrize("protocol", ["s3", "azure"])
@pytest.mark.parametrize("size", SIZES)
def test_the_condition_is_part_of_the_last_request(protocol: Any, size: str) -> None:
    with Played(protocol=protocol) as server:
        operation: Any = "complete" if size == "many parts" else "put"
        server.play(faults.replaced(b"of somebody else", "a.ffr"), operation=operation)
        # The signature with an account key covers the header.
        is_told = protocol == "s3" or size == "one part"
        if is_told:
            with pytest.raises(FileExistsError, match="overwrite=True"):
                write(server, SIZES[size])
            assert server.get("a.ffr") == b"of somebody else"
        else:
            write(server, SIZES[size])
            assert is_there(server, SIZES[size])
        assert left(server) == []


LOST = {
    "reset": faults.reset(),
    "closed": faults.close(),
    "500": faults.carried_out(faults.internal_error()),
    "503": faults.carried_out(faults.slow_down()),
    "error in the body": faults.carried_out(faults.error_in_body()),
}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("operation", ["put", "part", "complete"])
@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_request_whose_answer_is_lost_is_not_done_twice(
    protocol: Any, name: str, operation: Any, overwrite: bool
) -> None:
    if name == "error in the body" and operation != "complete":
        return  # only the answer to that request can begin before it is done
    records = FEW if operation == "put" else MANY
    with Played({"a.ffr": b"old"} if overwrite else {}, protocol=protocol) as server:
        server.play(LOST[name], operation=operation, times=1)
        write(server, records, overwrite=overwrite)
        assert is_there(server, records)
        assert left(server) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("size", SIZES)
def test_bytes_that_are_damaged_on_their_way_are_sent_again(protocol: Any, size: str) -> None:
    operation: Any = "part" if size == "many parts" else "put"
    with Played(protocol=protocol) as server:
        server.play(faults.damaged(), operation=operation, times=2)
        write(server, SIZES[size], overwrite=True)
        assert is_there(server, SIZES[size])
        server.play(faults.damaged(), operation=operation)
        for options in ({}, UNSIGNED):
            if options and protocol != "s3":
                continue
            with pytest.raises(OSError, match="other bytes arrived at the server than were sent"):
                write(server, SIZES[size], "b.ffr", overwrite=True, max_retries=2, **options)
            assert left(server) == []
            assert operation == "put" or server.get("b.ffr") is None
        options = UNSIGNED if protocol == "s3" else {}
        write(server, SIZES[size], "c.ffr", overwrite=True, check_uploads=False, **options)
        assert not is_there(server, SIZES[size], "c.ffr")


def test_a_tag_that_is_no_checksum_is_not_compared() -> None:
    for headers in (
        {"etag": '"0123456789"'},
        {"etag": '"00000000000000000000000000000000"', "x-amz-server-side-encryption": "aws:kms"},
    ):
        with Played() as server:
            server.play(faults.headers(**headers), operation="put")
            write(server, FEW)
            assert is_there(server, FEW)


def in_batch(code: str) -> Fault:
    """An answer of S3 with an error for each object of a batch. Some servers do so for objects that do not exist."""

    def change(exchange: Exchange) -> Response:
        names = re.findall("<Key>(.*?)</Key>", exchange.request.body.decode())
        errors = [
            f"<Error><Key>{name}</Key><Code>{code}</Code><Message>played by the test</Message></Error>"
            for name in names
        ]
        body = f"<DeleteResult>{''.join(errors)}</DeleteResult>"
        return Response(200, {"content-type": "application/xml"}, body.encode())

    return Fault(f"{code} in a batch", change)


@pytest.mark.parametrize(
    ("protocol", "fault"), [("s3", None), ("s3", in_batch("NoSuchKey")), ("gcs", None), ("azure", None)]
)
def test_to_delete_what_does_not_exist_is_one_request_and_no_error(protocol: Any, fault: Fault | None) -> None:
    with Played(protocol=protocol) as server:
        if fault is not None:
            server.play(fault, operation="delete")
        _core.delete_objects([server.url("none")], [(name, str(value)) for name, value in server.storage.items()])
        assert len(server.log) == 1


def test_one_who_may_not_delete_is_told_after_one_request() -> None:
    with Played() as server:
        server.play(in_batch("AccessDenied"), operation="delete")
        with pytest.raises(PermissionError, match="refuses to delete"):
            _core.delete_objects([server.url("a")], [(name, str(value)) for name, value in server.storage.items()])
        assert len(server.log) == 1


@pytest.mark.parametrize("fault", [faults.internal_error(), faults.slow_down()], ids=lambda fault: fault.name)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_set_whose_journal_is_deleted_but_the_answer_is_lost_is_complete(protocol: Any, fault: Fault) -> None:
    with Played(protocol=protocol) as server:
        server.play(faults.carried_out(fault), operation="delete", times=1)
        storage = {**server.storage, **QUICK, "max_retries": 1}
        with anyrecord.create(server.url("a.ffr"), shards=2, storage=storage) as out:
            out.write_many(FEW)
        assert sorted(anyrecord.open(server.url("a.ffr@2"), storage=storage)) == sorted(FEW)
        assert server.names() == ["a-00000-of-00002.ffr", "a-00001-of-00002.ffr"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("operation", ["begin", "part", "complete"])
def test_a_refused_upload_is_an_error_and_leaves_nothing(protocol: Any, operation: Any) -> None:
    if (protocol, operation) == ("azure", "begin"):
        return  # there is no such request
    with Played(protocol=protocol) as server:
        server.play(faults.access_denied(), operation=operation)
        with pytest.raises(PermissionError) as caught:
            write(server, MANY)
        assert caught.value.filename == server.url("a.ffr")
        assert (server.names(), left(server)) == ([], [])


def test_one_object_can_be_written_without_permission_to_read() -> None:
    with Played() as server:
        server.play(faults.access_denied(), method="HEAD")
        server.play(faults.access_denied(), method="GET")
        write(server, FEW, overwrite=True)
        write(server, MANY, "b.ffr", overwrite=True)
        assert is_there(server, FEW)
        assert is_there(server, MANY, "b.ffr")
        for act in (
            lambda: write(server, FEW),
            lambda: anyrecord.create(server.url("c.ffr"), shards=2, overwrite=True, storage=server.storage),
        ):
            with pytest.raises(PermissionError) as caught:
                act()
            assert caught.value.filename in (server.url("a.ffr"), server.url("c.ffr"))


def test_a_part_that_fails_ends_the_next_write() -> None:
    with Played() as server:
        server.play(faults.access_denied(), operation="part")
        with anyrecord.create(server.url("a.tfrecord"), storage={**server.storage, **QUICK}) as out:
            with pytest.raises(PermissionError):
                out.write_many(BLOCK for _ in range(1000))
            with pytest.raises(anyrecord.ClosedError, match="writing failed before"):
                out.write(b"more")
            out.discard()
        assert (server.names(), server.uploads()) == ([], [])


def test_an_upload_that_cannot_be_aborted_is_told_by_its_name() -> None:
    with Played() as server:
        out = anyrecord.create(server.url("a.tfrecord"), storage={**server.storage, **QUICK})
        out.write_many(MANY)
        while not server.uploads():  # it begins in the background
            pass
        server.play(faults.access_denied(), operation="abort")
        with pytest.warns(RuntimeWarning, match="could not be aborted.*lifecycle rule") as caught:
            out.discard()
        (upload,) = server.uploads()
        assert upload in str(caught[0].message)


@pytest.mark.parametrize("fault", [faults.stall(), faults.stall_in_request(1000)], ids=lambda fault: fault.name)
def test_a_stalled_upload_is_sent_again_and_a_slow_one_is_not(fault: Fault) -> None:
    with Played() as server:
        server.play(fault, operation="part", times=1)
        server.play(faults.late(0.3), operation="put")
        write(server, MANY, read_timeout="2s")
        assert is_there(server, MANY)
        assert len([entry for entry in server.log if entry.operation == "part"]) == 5


def write_and_close(out: anyrecord.Writer) -> None:
    out.write_many(MANY)
    out.close()


ACTS: dict[str, tuple[str, Callable[[anyrecord.Writer], object]]] = {
    "write": ("part", lambda out: out.write_many([BLOCK] * 100)),
    "close of one part": ("put", lambda out: out.close()),
    "close": ("complete", lambda out: write_and_close(out)),
}


@pytest.mark.parametrize("name", ACTS)
def test_writing_hears_ctrl_c(name: str) -> None:
    operation, act = ACTS[name]
    with Played() as server:
        options = {**server.storage, **PATIENT, "upload_part_size": SMALL, "upload_memory": 3 * SMALL}
        out = anyrecord.create(server.url("a.tfrecord"), storage=options)
        out.write(b"first")
        chosen: Any = operation
        server.play(faults.stall_in_request() if operation == "part" else faults.stall(), operation=chosen)
        interrupted_at(server, chosen, lambda: act(out))
        server.clear()
        out.discard()
        assert "a.tfrecord" not in server.names() or operation != "part"
        assert server.uploads() == []


def interrupted_at(server: Played, operation: str, act: Callable[[], object]) -> None:
    """Sends Ctrl-C when the first request of that kind has come."""
    interrupted(lambda: any(entry.operation == operation for entry in list(server.log)), act)


PROGRAM = """
import os, sys
import anyrecord
storage = dict(pair.split("=", 1) for pair in sys.argv[2:])
out = anyrecord.create(sys.argv[1], storage=storage)
block = bytes(range(256)) * 4096
for _ in range(20):
    out.write(block)
"""


def run(program: str, server: Played, **options: str) -> subprocess.CompletedProcess[str]:
    storage = {**server.storage, "upload_part_size": str(SMALL), **options}
    arguments = [f"{name}={value}" for name, value in storage.items()]
    command = [sys.executable, "-c", program, server.url("a.tfrecord"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_program_that_ends_with_an_open_writer_leaves_nothing() -> None:
    with Played() as server:
        done = run(PROGRAM, server)
        assert done.returncode == 0, done.stderr
        assert "still open at the end of the program, and discarded" in done.stderr
        assert any(entry.operation == "part" for entry in server.log)
        assert (server.names(), server.uploads()) == ([], [])


def test_memory_is_bounded_whatever_the_number_of_shards() -> None:
    program = """
import re, sys
import anyrecord
storage = dict(pair.split("=", 1) for pair in sys.argv[2:])
def used():
    return int(re.search(r"RssAnon:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) << 10
block = bytes(range(256)) * 4096
def write(target, **options):
    most = 0
    with anyrecord.create(target, shards=40, **options) as out:
        for number in range(280):
            out.write(block)
            if number % 5 == 0:
                most = max(most, used())
    return most
local = write("local.tfrecord", durable=False)
print(write(sys.argv[1], storage=storage) - local)
"""
    with Played() as server:
        done = run(program, server, upload_memory=str(4 * SMALL))
        assert done.returncode == 0, done.stderr
        # The buffers of 40 parts would take 200 MB. What connections hold comes on top of the limit.
        assert int(done.stdout) < 4 * SMALL + (80 << 20)
        assert sum(len(server.get(name) or b"") for name in server.names()) > 280 << 20
        assert server.uploads() == []


def _child(out: anyrecord.Writer, url: str, storage: dict[str, Any], queue: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            out.write(b"of the child")
        except anyrecord.ClosedError as error:
            queue.put(str(error))
        del out
        with anyrecord.create(url, storage=storage) as own:
            own.write_many(MANY)
    os._exit(0)


def test_a_forked_child_leaves_the_uploads_of_its_parent_alone() -> None:
    with Played() as server:
        storage = {**server.storage, **QUICK}
        out = anyrecord.create(server.url("parent.tfrecord"), storage=storage)
        out.write_many(MANY)
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_child, args=(out, server.url("child.tfrecord"), storage, queue))
        child.start()
        assert "belongs to the process that created it" in queue.get(timeout=60)
        child.join()
        out.close()
        for name in ("parent", "child"):
            assert server.get(f"{name}.tfrecord") == bytes_of("tfrecord", MANY)
        assert server.uploads() == []


def test_a_writer_of_a_small_object_sends_few_requests() -> None:
    with Played() as server:
        write(server, FEW, overwrite=True)
        # Whether a conversion into the folder was interrupted, and the object.
        assert [entry.operation for entry in server.log] == ["head", "put"]
        server.clear()
        write(server, FEW, "b.ffr")
        assert [entry.operation for entry in server.log] == ["head", "head", "put"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_conversion_that_reads_other_records_back_deletes_them(protocol: Any) -> None:
    with Played({"from.tfrecord": bytes_of("tfrecord", FEW)}, protocol=protocol) as server:
        target: dict[str, Any] = {**server.storage, "check_uploads": False}
        if protocol == "s3":
            target.update(UNSIGNED)
        server.play(faults.damaged(0.9), operation="put")
        with pytest.raises(anyrecord.RecordError):
            anyrecord.convert(
                server.url("from.tfrecord"), server.url("a.tfrecord"), storage=server.storage, target_storage=target
            )
        assert server.names() == ["from.tfrecord"]
