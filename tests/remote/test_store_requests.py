"""How many requests reading takes through objects of obstore and fsspec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyrecord
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from obstore.store import S3Store

from .places import credentials
from .servers import BUCKET, Played
from .test_requests import FORMATS, RECORDS, SUFFIX, counted, file_bytes, store_shards

pytestmark = pytest.mark.filterwarnings("ignore:opening searched")
LEAST = {"ffrecord": 2, "array_record": 2, "recordio": 4, "tfrecord": 4}
"""The size and a part; without a table also the missing side index, and the rest."""


@pytest.fixture
def server() -> Iterator[Played]:
    with Played(gate=True) as played:
        yield played


def store_of(server: Played) -> S3Store:
    """A store that the core cannot take apart, because of the function that provides its credentials."""
    return S3Store(
        BUCKET,
        endpoint=server.endpoint,
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
        credential_provider=credentials,
    )


class Counting(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Counts the calls that would be requests."""

    protocol = "counting"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[str, Any] = {}
        self.calls: list[str] = []

    def info(self, path: str, **options: Any) -> Any:
        self.calls.append("info")
        return super().info(path, **options)

    def cat_ranges(self, paths: Any, starts: Any, ends: Any, **options: Any) -> Any:
        self.calls.append("cat_ranges")
        data = [self.store[path].getvalue() for path in paths]
        return [whole[start:end] for whole, start, end in zip(data, starts, ends, strict=True)]


@pytest.mark.parametrize("format", FORMATS)
def test_an_object_of_obstore_is_opened_with_few_requests(server: Played, format: str) -> None:
    name = f"a.{SUFFIX[format]}"
    server.put(name, file_bytes(format, RECORDS))
    server.clear()
    records = anyrecord.open(name, storage=store_of(server))
    requests, _ = counted(server)
    assert requests <= LEAST[format]
    assert records[17] == RECORDS[17]
    assert counted(server) == (1, 1)


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_of_fsspec_is_opened_with_few_calls(format: str) -> None:
    name = f"/a.{SUFFIX[format]}"
    system = Counting()
    system.pipe(name, file_bytes(format, RECORDS))
    system.calls.clear()
    records = anyrecord.open(name, storage=system)
    # Each read is followed by a look at what identifies the file. The first look is the one for its kind.
    assert len(system.calls) <= 2 * LEAST[format] + 1, system.calls
    assert records[17] == RECORDS[17]


def test_a_batch_over_many_objects_of_obstore_overlaps(server: Played) -> None:
    names = store_shards(server, "ffrecord", 32)
    server.clear()
    records = anyrecord.open(names, storage=store_of(server))
    requests, waves = counted(server)
    assert requests <= 2 * 32
    assert waves <= 16
    chosen = list(range(0, len(RECORDS), 20))
    assert records[chosen] == [RECORDS[index % 20 * 32 + index // 20] for index in chosen]
    requests, waves = counted(server)
    assert requests == 32
    assert waves <= 16


@pytest.mark.parametrize("what", ["obstore", "fsspec"])
def test_an_object_that_is_replaced_is_an_error(server: Played, what: str) -> None:
    old, new = file_bytes("ffrecord", RECORDS), file_bytes("ffrecord", RECORDS[::-1])
    if what == "obstore":
        server.put("a.ffr", old)
        records = anyrecord.open("a.ffr", storage=store_of(server))
        server.put("a.ffr", new)
    else:
        system = fsspec.filesystem("memory")
        system.pipe("/replaced/a.ffr", old)
        records = anyrecord.open("/replaced/a.ffr", storage=system)
        system.pipe("/replaced/a.ffr", new)
    for read in (lambda: records[5], lambda: records[[1, 300, 600]], lambda: list(records)):
        with pytest.raises(anyrecord.FormatError, match="changed after it was opened"):
            read()


def test_an_empty_object_is_no_request_for_bytes() -> None:
    system = Counting()
    system.pipe("/empty.tfrecord", b"")
    assert len(anyrecord.open("/empty.tfrecord", storage=system)) == 0
    assert "cat_ranges" not in system.calls
