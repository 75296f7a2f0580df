"""A store that fails while a set gets its names: the old set, the new one, or an error that names `recover`."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import anyrecord
import pytest

from .servers import Played, faults
from .servers.faults import Fault
from .servers.operations import Operation

SOON: dict[str, Any] = {"init_backoff": "1ms", "max_backoff": "5ms", "max_retries": 3}
OLD = [b"old %d" % number for number in range(30)]
NEW = [random.Random(number).randbytes(4000) for number in range(30)]
SHARDS = 3


@pytest.fixture
def server() -> Iterator[Played]:
    with Played() as played:
        yield played


def write(server: Played, records: list[bytes], **more: Any) -> None:
    storage = {**server.storage, **SOON}
    with anyrecord.create(server.url("d/a.ffr"), shards=SHARDS, storage=storage, **more) as out:
        out.write_many(records)


def files_of(records: list[bytes], shards: int = SHARDS) -> dict[str, bytes]:
    folder = Path(f"files-{shards}-{len(records[0])}")
    folder.mkdir(exist_ok=True)
    with anyrecord.create(folder / "a.ffr", shards=shards, overwrite=True, durable=False) as out:
        out.write_many(records)
    return {f"d/{path.name}": path.read_bytes() for path in folder.iterdir()}


def visible(server: Played) -> dict[str, bytes]:
    return {name: server.get(name) or b"" for name in server.names() if not name.endswith(".publish")}


def journals(server: Played) -> list[str]:
    return [name for name in server.names() if name.endswith(".publish")]


def read(server: Played) -> list[bytes]:
    return list(anyrecord.open(server.url("d/a-*.ffr"), storage={**server.storage, **SOON}))


STAYING = {
    "500": faults.internal_error(),
    "403": faults.access_denied(),
    "reset": faults.reset_in_request(0.5),
    "answer lost": faults.reset(),
    "500, but done": faults.carried_out(faults.internal_error()),
    "200 with an error": faults.error_in_body(),
}
DONE = ("answer lost", "500, but done")


@pytest.mark.parametrize("fault", [name for name in STAYING if name != "200 with an error"])
@pytest.mark.parametrize("operation", ["begin", "part", "put"])
@pytest.mark.parametrize("is_over_old", [False, True])
def test_before_the_journal_is_there_nothing_has_changed(
    server: Played, operation: Operation, fault: str, is_over_old: bool
) -> None:
    if is_over_old:
        write(server, OLD)
        server.clear()
    before = visible(server)
    server.play(STAYING[fault], operation=operation)
    if operation == "put" and fault in DONE:  # the journal is there, and the writer finds it
        write(server, NEW, overwrite=is_over_old)
        assert visible(server) == files_of(NEW)
    else:
        with pytest.raises(OSError, match=re.escape(server.url("d/"))):
            write(server, NEW, overwrite=is_over_old)
        assert visible(server) == before
    assert journals(server) == []
    assert all(not upload.parts for upload in server.objects.uploads.values())
    if operation != "begin":
        assert server.uploads() == []


NOT_DONE = [name for name in STAYING if name not in DONE]


@pytest.mark.parametrize("fault", NOT_DONE)
@pytest.mark.parametrize(("is_over_old", "completed"), [(False, 0), (False, 1), (False, 2), (True, 0)])
def test_a_set_that_cannot_be_completed_is_undone(
    server: Played, fault: str, completed: int, is_over_old: bool
) -> None:
    """Some shards are completed, the others cannot be. No old one was replaced."""
    if is_over_old:
        write(server, OLD)
        server.clear()
    old, failing = visible(server), sorted(files_of(NEW))[completed:]
    for name in failing:
        server.play(STAYING[fault], operation="complete", path=name)
    with pytest.raises(OSError, match=re.escape(server.url("d/"))):
        write(server, NEW, overwrite=is_over_old)
    assert visible(server) == old
    assert (journals(server), server.uploads()) == ([], [])
    server.clear()
    write(server, NEW, overwrite=is_over_old)
    assert visible(server) == files_of(NEW)


@pytest.mark.parametrize("fault", NOT_DONE)
@pytest.mark.parametrize(("is_over_old", "completed"), [(False, 0), (False, 1), (False, 2), (True, 1), (True, 2)])
def test_a_set_that_can_neither_be_completed_nor_undone_names_recover(
    server: Played, fault: str, completed: int, is_over_old: bool
) -> None:
    """What the error advises works. What is not possible any more is refused, and changes nothing."""
    if is_over_old:
        write(server, OLD)
        server.clear()
    old, new = visible(server), files_of(NEW)
    failing = sorted(new)[completed:]
    for name in failing:
        server.play(STAYING[fault], operation="complete", path=name)
        server.play(faults.access_denied(), operation="abort", path=name)
    with pytest.raises(anyrecord.PublishError, match=r"anyrecord\.recover\(") as caught:
        write(server, NEW, overwrite=is_over_old)
    assert len(journals(server)) == 1
    found = visible(server)
    assert all(found.get(name) == old.get(name) for name in failing)
    assert all(found.get(name) in (new[name], None) for name in sorted(new)[:completed])
    server.clear()
    for refused in (read, lambda server: write(server, NEW, overwrite=True)):
        with pytest.raises(anyrecord.PublishError, match=r"anyrecord\.recover\("):
            refused(server)
    storage, url = {**server.storage, **SOON}, server.url("d/a.ffr")
    with pytest.raises(anyrecord.PublishError, match="keep"):
        anyrecord.recover(url, storage=storage)
    advice = re.search('keep="(old|new)"', str(caught.value))
    assert advice
    keep, other = ("old", "new") if advice[1] == "old" else ("new", "old")
    if is_over_old:
        with pytest.raises(anyrecord.PublishError, match=f'keep="{keep}"'):
            anyrecord.recover(url, keep=other, storage=storage)  # type: ignore[arg-type]
    assert visible(server) == found
    done = anyrecord.recover(url, keep=keep, storage=storage)  # type: ignore[arg-type]
    wanted = old if keep == "old" else new
    assert (done.interrupted, done.kept) == (True, keep)
    assert sorted(done.paths) == sorted(server.url(name) for name in wanted)
    assert visible(server) == wanted
    assert (journals(server), server.uploads()) == ([], [])
    assert not anyrecord.recover(url, storage=storage).interrupted


@pytest.mark.parametrize("fault", DONE)
@pytest.mark.parametrize("is_over_old", [False, True])
def test_completions_whose_answers_are_lost_are_found(server: Played, fault: str, is_over_old: bool) -> None:
    if is_over_old:
        write(server, OLD)
        server.clear()
    server.play(STAYING[fault], operation="complete")
    write(server, NEW, overwrite=is_over_old)
    assert visible(server) == files_of(NEW)
    assert (journals(server), server.uploads()) == ([], [])
    assert sorted(read(server)) == sorted(NEW)


@pytest.mark.parametrize("fault", ["500", "403", "reset"])
def test_a_journal_that_cannot_be_deleted_is_told_of(server: Played, fault: str) -> None:
    server.play(STAYING[fault], operation="delete")
    with pytest.raises(anyrecord.PublishError, match=r"anyrecord\.recover\("):
        write(server, NEW)
    assert visible(server) == files_of(NEW)
    server.clear()
    done = anyrecord.recover(server.url("d/a.ffr"), keep="new", storage={**server.storage, **SOON})
    assert (done.interrupted, done.kept) == (True, "new")
    assert visible(server) == files_of(NEW)
    assert (journals(server), server.uploads()) == ([], [])


@pytest.mark.parametrize("fault", ["500", "403", "reset"])
def test_old_shards_that_cannot_be_deleted_are_told_of(server: Played, fault: str) -> None:
    with anyrecord.create(server.url("d/a.ffr"), shards=5, storage=server.storage) as out:
        out.write_many(OLD)
    server.clear()
    server.play(STAYING[fault], operation="delete")
    with pytest.raises(anyrecord.PublishError, match=r"anyrecord\.recover\("):
        write(server, NEW, overwrite=True)
    assert len(journals(server)) == 1
    server.clear()
    with pytest.raises(anyrecord.PublishError, match=r"anyrecord\.recover\("):
        read(server)
    anyrecord.recover(server.url("d/a.ffr"), keep="new", storage={**server.storage, **SOON})
    assert visible(server) == files_of(NEW)
    assert (journals(server), server.uploads()) == ([], [])


def test_uploads_that_are_gone_are_an_error_that_tells_the_truth(server: Played) -> None:
    """A lifecycle rule may remove uploads before somebody calls `recover`: the new set cannot be had any more."""
    server.play(faults.internal_error(), operation="complete")
    server.play(faults.internal_error(), operation="abort")
    with pytest.raises(anyrecord.PublishError):
        write(server, NEW)
    server.clear()
    server.objects.uploads.clear()
    storage = {**server.storage, **SOON}
    with pytest.raises((anyrecord.PublishError, OSError), match="gone"):
        anyrecord.recover(server.url("d/a.ffr"), keep="new", storage=storage)
    assert visible(server) == {}
    anyrecord.recover(server.url("d/a.ffr"), keep="old", storage=storage)
    assert server.names() == []


@pytest.mark.parametrize("protocol", ["gcs", "azure"])
@pytest.mark.parametrize("fault", ["500", "403"])
@pytest.mark.parametrize("keep", ["old", "new"])
def test_the_other_stores(protocol: Literal["gcs", "azure"], fault: str, keep: Literal["old", "new"]) -> None:
    with Played(protocol=protocol) as server:
        new = files_of(NEW)
        server.play(STAYING[fault], operation="complete", path=sorted(new)[1])
        server.play(faults.access_denied(), operation="abort")
        server.play(faults.access_denied(), operation="delete")
        with pytest.raises(anyrecord.PublishError, match=r"anyrecord\.recover\("):
            write(server, NEW)
        server.clear()
        with pytest.raises(anyrecord.PublishError, match=r"anyrecord\.recover\("):
            read(server)
        done = anyrecord.recover(server.url("d/a.ffr"), keep=keep, storage={**server.storage, **SOON})
        assert (done.interrupted, done.kept) == (True, keep)
        assert visible(server) == (new if keep == "new" else {})
        assert journals(server) == []
        if protocol == "gcs":
            assert server.uploads() == []


def appearing(name: str) -> Fault:
    """Another writer stores an object just before this request."""

    def appear(exchange: faults.Exchange) -> Any:
        if exchange.objects.get(name) is None:
            exchange.objects.put(name, b"of another writer")
        return exchange.right

    return Fault("appears", appear)


def test_an_object_that_appears_before_its_completion_is_not_overwritten(server: Played) -> None:
    name = sorted(files_of(NEW))[1]
    server.play(appearing(name), operation="complete")
    with pytest.raises((FileExistsError, anyrecord.PublishError)):
        write(server, NEW)
    assert server.get(name) == b"of another writer"
    server.clear()
    if journals(server):
        anyrecord.recover(server.url("d/a.ffr"), keep="old", storage={**server.storage, **SOON})
    assert server.get(name) == b"of another writer"
    assert server.uploads() == []


def test_of_two_writers_of_a_name_one_is_refused(server: Played) -> None:
    """Both saw that nothing is there. The journal is put only if there is none."""
    storage = {**server.storage, **SOON}
    first, second = (anyrecord.create(server.url("d/a.ffr"), shards=SHARDS, storage=storage) for _ in range(2))
    first.write_many(NEW)
    second.write_many(OLD)
    first.close()
    with pytest.raises((FileExistsError, anyrecord.PublishError)):
        second.close()
    assert visible(server) == files_of(NEW)
    assert (journals(server), server.uploads()) == ([], [])
