"""A store that fails in every way during an upload: the whole object or nothing, and nothing is left on the store."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyrecord
import pytest

from .servers import Played, faults
from .servers.faults import Fault, Rule
from .servers.operations import Operation

SOON = {"init_backoff": "1ms", "max_backoff": "5ms", "max_retries": 1000, "retry_timeout": "600s"}
"""Retries without long waits."""
STALLS = {**SOON, "read_timeout": "300ms"}
TRIES = 4
PART_BYTES = 5 << 20
"""The smallest that a store takes."""


@dataclass(frozen=True)
class Kind:
    """A way to write objects, and the requests that it needs."""

    operations: tuple[Operation, ...]
    records: int
    size: int
    options: dict[str, Any]

    @property
    def is_set(self) -> bool:
        return "shards" in self.options


KINDS = {
    "one request": Kind(("put",), 20, 5_000, {}),
    "parts": Kind(("begin", "part", "complete"), 24, 500_000, {}),
    "set": Kind(("begin", "part", "put", "complete", "delete"), 20, 5_000, {"shards": 2}),
}
FORMATS: dict[str, dict[str, Any]] = {
    ".ffr": {},
    ".array_record": {"group_size": 3},
    ".tfrecord": {},
    ".recordio": {},
}


def record(number: int, size: int) -> bytes:
    return random.Random(number).randbytes(size)


def names_of(kind: Kind, suffix: str) -> list[str]:
    shards = kind.options.get("shards")
    return [f"d/a-{i:05}-of-{shards:05}{suffix}" for i in range(shards)] if shards else [f"d/a{suffix}"]


def write(target: str | Path, kind: Kind, suffix: str, **more: Any) -> None:
    options = {**FORMATS[suffix], **kind.options, **more}
    with anyrecord.create(target, num_records=kind.records, **options) as out:
        for number in range(kind.records):
            out.write(record(number, kind.size))


def failure_of(act: Callable[[], None]) -> Exception | None:
    try:
        act()
    except (OSError, anyrecord.RecordError) as error:
        return error
    return None


def upload(server: Played, kind: Kind, suffix: str, storage: dict[str, Any], **more: Any) -> None:
    options = {**server.storage, **storage, "upload_part_size": PART_BYTES}
    write(server.url(f"d/a{suffix}"), kind, suffix, storage=options, **more)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict[str, bytes]]:
    """What the objects have to be: the files that the same call writes to a disk."""
    found: dict[tuple[str, str], dict[str, bytes]] = {}

    def files(kind: str, suffix: str) -> dict[str, bytes]:
        if (kind, suffix) not in found:
            folder = tmp_path_factory.mktemp("expected") / "d"
            folder.mkdir()
            write(folder / f"a{suffix}", KINDS[kind], suffix)
            found[kind, suffix] = {f"d/{path.name}": path.read_bytes() for path in folder.iterdir()}
            assert sorted(found[kind, suffix]) == names_of(KINDS[kind], suffix)
        return found[kind, suffix]

    return files


Expected = Callable[[str, str], dict[str, bytes]]


@pytest.fixture
def server() -> Iterator[Played]:
    with Played() as played:
        yield played


def stored(server: Played) -> dict[str, bytes]:
    return {name: server.get(name) or b"" for name in server.names()}


def parts_left(server: Played) -> int:
    """Parts that the store still has and that belong to no object."""
    return sum(len(upload.parts) for upload in server.objects.uploads.values())


PASSING = {
    "reset before the body": faults.reset_in_request(),
    "reset in the body": faults.reset_in_request(0.5),
    "answer lost": faults.reset(),
    "closed instead of an answer": faults.close(),
    "500": faults.internal_error(),
    "500, but done": faults.carried_out(faults.internal_error()),
    "503": faults.slow_down(),
    "429": faults.too_many_requests(),
    "late": faults.late(0.05),
}
STALLING = {"stall in the body": faults.stall_in_request(0.5), "stall instead of an answer": faults.stall()}
DONE = ("answer lost", "closed instead of an answer", "500, but done", "stall instead of an answer")
"""The faults of requests that were carried out."""
EVERY = [(name, operation) for name, kind in KINDS.items() for operation in kind.operations]


@pytest.mark.parametrize("fault", [*PASSING, *STALLING])
@pytest.mark.parametrize(("kind", "operation"), EVERY)
def test_a_fault_that_passes_is_not_noticed(
    server: Played, expected: Expected, kind: str, operation: Operation, fault: str
) -> None:
    times = 1 if fault in STALLING else 2
    turn = EVERY.index((kind, operation)) + [*PASSING, *STALLING].index(fault)  # each format, over all faults
    for number, suffix in enumerate((*FORMATS, *FORMATS)[turn % 4 :][: 2 if kind != "parts" else 1], turn):
        server.clear()
        rule = server.play({**PASSING, **STALLING}[fault], operation=operation, times=times)
        upload(server, KINDS[kind], suffix, STALLS if fault in STALLING else SOON, overwrite=bool(number % 2))
        assert stored(server) == expected(kind, suffix)
        assert rule.played == times or fault == "late"
        assert parts_left(server) == 0
        if operation == "begin" and fault in DONE:
            # Nobody knows the id of an upload whose first answer was lost. It has no parts, and costs nothing.
            server.objects.uploads.clear()
        assert server.uploads() == []
        for name in server.names():
            server.objects.delete(name)


SIGNED: dict[str, dict[str, str]] = {"by the server": {}, "by the client": {"aws_unsigned_payload": "true"}}
"""Who finds damaged bytes: the server by the signature of the request, or the client by the ETag in the answer."""


@pytest.mark.parametrize("found", SIGNED)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("overwrite", [False, True])
def test_bytes_that_are_damaged_on_their_way_are_sent_again(
    server: Played, expected: Expected, kind: str, overwrite: bool, found: str
) -> None:
    operation: Operation = "put" if kind == "one request" else "part"
    rule = server.play(faults.damaged(), operation=operation, times=2)
    upload(server, KINDS[kind], ".ffr", {**SOON, **SIGNED[found]}, overwrite=overwrite)
    assert stored(server) == expected(kind, ".ffr")
    assert (rule.played, server.uploads()) == (2, [])


@pytest.mark.parametrize("found", SIGNED)
@pytest.mark.parametrize("kind", ["one request", "parts"])
@pytest.mark.parametrize("old", [None, b"what was there before"])
def test_damage_that_stays_is_an_error(server: Played, kind: str, found: str, old: bytes | None) -> None:
    if old is not None:
        server.put("d/a.ffr", old)
    operation: Operation = "put" if kind == "one request" else "part"
    server.play(faults.damaged(), operation=operation)
    with pytest.raises(OSError, match="other bytes arrived") as caught:
        upload(server, KINDS[kind], ".ffr", {**SOON, **SIGNED[found], "max_retries": TRIES}, overwrite=old is not None)
    assert server.url("d/a.ffr") in str(caught.value)
    is_lost = kind == "one request" and found == "by the client"  # what was there is overwritten when we see it
    assert server.get("d/a.ffr") in ((None,) if is_lost else (old,))
    assert server.uploads() == []


@pytest.mark.parametrize("kind", ["parts", "set"])
def test_an_error_in_the_body_of_an_answer_is_an_error(server: Played, expected: Expected, kind: str) -> None:
    rule = server.play(faults.error_in_body(), operation="complete", times=2)
    upload(server, KINDS[kind], ".ffr", SOON)
    assert stored(server) == expected(kind, ".ffr")
    assert (rule.played, server.uploads()) == (2, [])


STAYING: dict[str, tuple[Fault, str]] = {
    "500": (faults.internal_error(), "500"),
    "503": (faults.slow_down(), "overloaded"),
    "429": (faults.too_many_requests(), "overloaded"),
    "403": (faults.access_denied(), "403|denied|permission"),
    "401": (faults.unauthorized(), "401|credentials|permission"),
    "reset before the body": (faults.reset_in_request(), "broke"),
    "reset in the body": (faults.reset_in_request(0.5), "broke"),
    "answer lost": (faults.reset(), "broke"),
    "500, but done": (faults.carried_out(faults.internal_error()), "500"),
}


@pytest.mark.parametrize("fault", STAYING)
@pytest.mark.parametrize(("kind", "operation"), [pair for pair in EVERY if pair[0] != "set"])
@pytest.mark.parametrize("old", [None, b"what was there before"])
def test_a_fault_that_stays_is_an_error_or_the_whole_object(
    server: Played, expected: Expected, kind: str, operation: Operation, fault: str, old: bytes | None
) -> None:
    suffix = ".ffr"
    before = {} if old is None else {f"d/a{suffix}": old}
    for name, data in before.items():
        server.put(name, data)
    played, said = STAYING[fault]
    server.play(played, operation=operation)
    storage = {**SOON, "max_retries": TRIES}
    is_done = fault in DONE and operation in ("put", "complete")
    error = failure_of(lambda: upload(server, KINDS[kind], suffix, storage, overwrite=old is not None))
    if is_done:  # it was carried out, and the writer found that out
        assert error is None
        assert stored(server) == expected(kind, suffix)
    else:
        assert isinstance(error, OSError)
        assert re.search(said, str(error), re.IGNORECASE), error
        assert server.url(f"d/a{suffix}") in str(error)
        assert stored(server) == before
    assert parts_left(server) == 0
    if operation != "begin":
        assert server.uploads() == []
    # No request was sent more often than the budget allows.
    tries: dict[tuple[str, str], int] = {}
    for entry in server.log:
        which = (entry.operation, entry.query.get("partNumber", ""))
        tries[which] = tries.get(which, 0) + 1
    assert max(tries.values()) <= 2 * (TRIES + 1)


@pytest.mark.parametrize("operation", ["part", "complete"])
def test_an_upload_that_is_gone_is_an_error(server: Played, operation: Operation) -> None:
    server.play(faults.no_such_upload(), operation=operation, times=1)
    with pytest.raises(OSError, match="upload is gone") as caught:
        upload(server, KINDS["parts"], ".ffr", SOON)
    assert server.url("d/a.ffr") in str(caught.value)
    assert (stored(server), server.uploads()) == ({}, [])


def test_an_object_that_appears_during_the_upload_is_not_overwritten(server: Played) -> None:
    for kind, operation in (("one request", "put"), ("parts", "complete")):
        server.clear()
        name = f"d/a{kind[:3]}.ffr"

        def appear(exchange: faults.Exchange, name: str = name) -> Any:
            if exchange.objects.get(name) is None:
                exchange.objects.put(name, b"of another writer")
            return exchange.right

        server.play(Fault("appears", appear), operation=operation)  # type: ignore[arg-type]
        options = {**server.storage, **SOON, "upload_part_size": PART_BYTES}
        with pytest.raises(FileExistsError, match=re.escape(server.url(name))):
            write(server.url(name), KINDS[kind], ".ffr", storage=options)
        assert server.get(name) == b"of another writer"
        assert server.uploads() == []


@pytest.mark.parametrize("fault", ["500", "403", "reset before the body"])
def test_an_upload_that_cannot_be_aborted_is_named_in_a_warning(server: Played, fault: str) -> None:
    server.play(STAYING["403"][0], operation="complete")
    server.play(STAYING[fault][0], operation="abort")
    with (
        pytest.warns(RuntimeWarning, match="lifecycle rule") as warned,
        pytest.raises(OSError, match=re.escape(server.url("d/a.ffr"))),
    ):
        upload(server, KINDS["parts"], ".ffr", {**SOON, "max_retries": TRIES})
    (left,) = server.uploads()
    assert left in str(warned[0].message)
    assert stored(server) == {}


def write_and_fail(url: str, **options: Any) -> None:
    with anyrecord.create(url, **options) as out:
        for number in range(48):
            out.write(record(number, 500_000))
        raise LookupError("of the caller")


def test_an_exception_of_the_caller_aborts_the_upload(server: Played) -> None:
    options = {**server.storage, **SOON, "upload_part_size": PART_BYTES}
    for more in ({}, {"shards": 2}):
        with pytest.raises(LookupError, match="of the caller"):
            write_and_fail(server.url("d/a.tfrecord"), storage=options, **more)
        assert (stored(server), server.uploads()) == ({}, [])
    assert {"begin", "part", "abort"} <= {entry.operation for entry in server.log}


OTHERS: list[tuple[Literal["gcs", "azure", "http"], str, Operation]] = [
    ("gcs", "one request", "put"),
    ("gcs", "parts", "begin"),
    ("gcs", "parts", "part"),
    ("gcs", "parts", "complete"),
    ("azure", "one request", "put"),
    ("azure", "parts", "part"),
    ("azure", "parts", "complete"),
    ("http", "one request", "put"),
    ("http", "parts", "put"),
]
"""An upload to Azure begins with its first part. Web servers get every object in one request."""


@pytest.mark.parametrize("fault", [*PASSING, "damaged"])
@pytest.mark.parametrize(("protocol", "kind", "operation"), OTHERS)
def test_the_other_stores(
    expected: Expected, protocol: Literal["gcs", "azure", "http"], kind: str, operation: Operation, fault: str
) -> None:
    if fault == "damaged" and (operation not in ("put", "part") or protocol == "http"):
        return  # it has no bytes, or nobody could tell
    for overwrite in (False, True) if kind != "parts" or operation != "part" else (False,):
        with Played(protocol=protocol) as server:
            rule = server.play({**PASSING, "damaged": faults.damaged()}[fault], operation=operation, times=2)
            upload(server, KINDS[kind], ".ffr", SOON, overwrite=overwrite)
            assert stored(server) == expected(kind, ".ffr")
            assert rule.played == 2 or fault == "late"
            assert parts_left(server) == 0


def random_faults(server: Played, seed: int) -> list[Rule]:
    """Every fifth request fails, each time in another way. Sometimes a store refuses to take something."""
    quick = {**PASSING, "damaged": faults.damaged()}
    rules = [server.play(fault, chance=0.02, seed=seed * 100 + number) for number, fault in enumerate(quick.values())]
    refusal = server.play(
        faults.access_denied(), chance=0.02, seed=seed, when=lambda request: request.method != "DELETE"
    )
    return [*rules, refusal]


def test_uploads_to_a_store_that_fails_at_random(expected: Expected) -> None:
    """All that a reader finds is whole. An error leaves nothing behind, or a journal that `recover` finishes."""
    requests = played = failed = 0
    with Played() as server:
        for seed in range(60):
            kind = list(KINDS)[seed % 3]
            suffix = list(FORMATS)[seed % 4] if kind != "parts" else ".ffr"
            rules = random_faults(server, seed)
            error = failure_of(lambda: upload(server, KINDS[kind], suffix, SOON))  # noqa: B023 (called at once)
            requests, played = requests + server.requests, played + sum(rule.played for rule in rules)
            failed += error is not None
            server.clear()
            if isinstance(error, anyrecord.PublishError):
                assert "anyrecord.recover(" in str(error)
                anyrecord.recover(server.url(f"d/a{suffix}"), keep="new", storage=server.storage)
            assert error is None or server.url("d/") in str(error)
            is_there = error is None or isinstance(error, anyrecord.PublishError)
            assert stored(server) == (expected(kind, suffix) if is_there else {}), seed
            assert parts_left(server) == 0, seed
            for name in server.names():
                server.objects.delete(name)
    assert played > 60
    print(f"{requests} requests, {played} faults, {failed} of 60 uploads failed, no wrong byte")
