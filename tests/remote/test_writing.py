"""Writers of URLs: an object appears when it is complete, or not at all, on every place that can be written to."""

from __future__ import annotations

import gc
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyrecord
import fsspec
import pytest
from conformance.formats import FIRST_CASES, Case
from conformance.storages import RECORDS

from . import places
from .files import bytes_of
from .places import OnServer, Place
from .servers import Played

WRITABLE: list[Any] = [
    param for param in places.PARAMS if param in ("memory", "moto", "gcs", "azure", "webdav", "obstore s3")
]
WRITABLE += [param for param in places.PARAMS if not isinstance(param, str)]
"""All kinds of stores. Only `make test` installs s3s-fs."""

SMALL = 5 << 20
"""The smallest size of a part."""
BLOCK = random.Random(1).randbytes(3 << 20)
MANY = [BLOCK[number:] for number in range(6)]
"""More than three parts."""
FEW = [b"one", b"", b"three"]

pytestmark = pytest.mark.filterwarnings("ignore:opening searched")


@pytest.fixture(params=WRITABLE)
def place(request: pytest.FixtureRequest, start_place: Any) -> Place:
    """Each place that can be written to."""
    found: Place = start_place(request.param)
    return found


def storage_of(place: Place, **options: Any) -> Any:
    """What to pass as `storage=`, with parts of the smallest size where that is an option."""
    if not isinstance(place.storage, dict | None):
        return place.storage
    return {**(place.storage or {}), "upload_part_size": SMALL, **options}


def left(place: Place) -> list[str]:
    """The uploads that are neither completed nor aborted."""
    # The parts of Azure cannot be deleted. The store forgets them after a week.
    return place.server.uploads() if isinstance(place, OnServer) and place.name != "azure" else []


def exists(place: Place, key: str) -> bool:
    try:
        anyrecord.open(place.path(key), storage=place.storage)
    except FileNotFoundError:
        return False
    return True


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_what_is_written_is_read_back(place: Place, case: Case) -> None:
    path = place.path(f"written/{case}{case.suffix}")
    with anyrecord.create(path, overwrite=True, storage=place.storage, **case.options) as out:
        out.write_many(RECORDS)
    assert out.paths == [place.shown(f"written/{case}{case.suffix}")]
    assert list(anyrecord.open(path, storage=place.storage)) == list(RECORDS)


@pytest.mark.parametrize("records", [[], FEW, MANY], ids=["empty", "one part", "many parts"])
def test_the_bytes_are_those_of_a_local_file(place: Place, records: list[bytes]) -> None:
    key = f"same-{len(records)}.tfrecord"
    with anyrecord.create(place.path(key), overwrite=True, storage=storage_of(place)) as out:
        out.write_many(records)
    with anyrecord.create("same.tfrecord", overwrite=True, durable=False) as out:
        out.write_many(records)
    if isinstance(place, OnServer):
        assert place.server.get(key) == Path("same.tfrecord").read_bytes()
    assert list(anyrecord.open(place.path(key), storage=place.storage)) == records
    assert left(place) == []


@pytest.mark.parametrize("records", [FEW, MANY], ids=["one part", "many parts"])
def test_nothing_appears_before_the_writer_is_closed_or_if_it_is_not(place: Place, records: list[bytes]) -> None:
    def by_exception(out: anyrecord.Writer) -> None:
        with pytest.raises(ZeroDivisionError), out:
            raise ZeroDivisionError

    def by_dropping(out: anyrecord.Writer) -> None:
        pass

    ends: dict[str, Callable[[anyrecord.Writer], object]] = {
        "discard": anyrecord.Writer.discard,
        "exception": by_exception,
        "drop": by_dropping,
    }
    for name, end in ends.items():
        key = f"never-{name}.ffr"
        out = anyrecord.create(place.path(key), storage=storage_of(place), num_records=len(records) + 1)
        out.write_many(records)
        assert not exists(place, key)
        end(out)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del out
            gc.collect()
        assert [warning.category for warning in caught] == ([RuntimeWarning] if name == "drop" else [])
        assert not exists(place, key)
        assert left(place) == []


def test_a_wrong_number_of_records_publishes_nothing(place: Place) -> None:
    key = "wrong-number.ffr"
    with (
        pytest.raises(ValueError, match="num_records announced 3"),
        anyrecord.create(place.path(key), storage=place.storage, num_records=3) as out,
    ):
        out.write(b"one")
    assert not exists(place, key)


@pytest.mark.parametrize("records", [FEW, MANY], ids=["one part", "many parts"])
def test_an_object_is_replaced_only_if_that_is_asked_for(place: Place, records: list[bytes]) -> None:
    path, options = place.path(f"replaced-{len(records)}.ffr"), {"storage": storage_of(place)}
    first = anyrecord.create(path, overwrite=True, **options)
    first.write(b"first")
    first.close()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        anyrecord.create(path, **options)
    with anyrecord.create(path, overwrite=True, **options) as out:
        out.write_many(records)
        assert list(anyrecord.open(path, storage=place.storage)) == [b"first"]
    assert list(anyrecord.open(path, storage=place.storage)) == records
    assert left(place) == []


@pytest.mark.parametrize("records", [FEW, MANY], ids=["one part", "many parts"])
def test_an_object_that_appeared_meanwhile_is_not_overwritten(place: Place, records: list[bytes]) -> None:
    key = f"meanwhile-{len(records)}.ffr"
    out = anyrecord.create(place.path(key), storage=storage_of(place))
    out.write_many(records)
    place.put(key, bytes_of("ffrecord", [b"of somebody else"]))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        out.close()
    assert list(anyrecord.open(place.path(key), storage=place.storage)) == [b"of somebody else"]
    assert left(place) == []


def test_pack_and_convert_and_salvage_and_build_index_write_objects(place: Place) -> None:
    storage = place.storage
    Path("folder").mkdir(exist_ok=True)
    Path("folder/a.txt").write_bytes(b"text")
    anyrecord.pack("folder", place.path("all/packed.ffr"), overwrite=True, storage=storage)
    assert anyrecord.Folder(place.path("all/packed.ffr"), storage=storage)["a.txt"] == b"text"

    source = place.path("all/a.tfrecord")
    with anyrecord.create(source, overwrite=True, storage=storage) as out:
        out.write_many(RECORDS)
    both = {"storage": storage, "target_storage": storage, "overwrite": True}
    done = anyrecord.convert(source, place.path("all/a.array_record"), **both)
    assert (done.records, done.paths) == (len(RECORDS), (place.shown("all/a.array_record"),))
    assert list(anyrecord.open(place.path("all/a.array_record"), storage=storage)) == list(RECORDS)
    assert done.file_bytes == anyrecord.info(place.path("all/a.array_record"), storage=storage).file_bytes
    saved = anyrecord.salvage(source, place.path("all/saved.ffr"), **both)
    assert (saved.records, saved.paths) == (len(RECORDS), (place.shown("all/saved.ffr"),))
    assert list(anyrecord.open(place.path("all/saved.ffr"), storage=storage)) == list(RECORDS)

    assert anyrecord.build_index(source, storage=storage) == [place.shown("all/.a.tfrecord.index")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert anyrecord.open(source, storage=storage)[5] == RECORDS[5]
    assert left(place) == []


REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "scheme": ("hdfs://me:hidden@host/x.ffr", {}, ValueError, 'the scheme "hdfs"'),
    "bucket": ("s3://key:hidden@bucket/x.ffr", {}, ValueError, "names no bucket"),
    "folder": ("memory://folder/", {"format": "ffrecord"}, IsADirectoryError, "ends in a slash"),
    "suffix": ("memory://x.unknown", {}, ValueError, "no known suffix"),
    "option": ("memory://x.ffr", {"storage": {"region": "x"}}, ValueError, 'no storage option "region"'),
    "part size": ("memory://x.ffr", {"storage": {"upload_part_size": 1}}, ValueError, "upload_part_size"),
    "file system": ("x.ffr", {"storage": fsspec.filesystem("memory")}, ValueError, "pass the file object"),
    "set on the web": ("http://me:hidden@host/x.ffr", {"shards": 2}, ValueError, "web server"),
    "mangled": (Path("s3://bucket/x.ffr"), {}, ValueError, "looks like a s3:// URL"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_to_is_refused_by_name(name: str) -> None:
    target, options, kind, text = REFUSED[name]
    with pytest.raises(kind) as caught:
        anyrecord.create(target, **options)
    assert text in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_web_server_that_takes_no_files_says_so(start_place: Any) -> None:
    place = start_place("http")
    with (
        pytest.raises(OSError, match="the server takes no files"),
        anyrecord.create(place.path("x.ffr"), storage=place.storage) as out,
    ):
        out.write(b"one")


def test_a_missing_bucket_is_named_with_the_first_part_that_is_sent(start_place: Any) -> None:
    place = start_place("moto")
    out = anyrecord.create("s3://no-such-bucket/x.tfrecord", overwrite=True, storage=storage_of(place))
    with pytest.raises(FileNotFoundError, match="no such bucket"), out:
        out.write_many(MANY * 100)
    assert out.closed


def test_secrets_of_an_address_are_not_shown() -> None:
    with Played(protocol="http") as server:
        url = server.url("x.ffr").replace("http://", "http://me:hidden@") + "?signature=hidden"
        out = anyrecord.create(url)
        out.write(b"one")
        assert "hidden" not in repr(out) + str(out.paths)
        out.close()
        assert out.paths == [server.url("x.ffr")]
        assert list(anyrecord.open(url)) == [b"one"]
        with pytest.raises(FileExistsError) as caught:
            anyrecord.create(url)
        assert "hidden" not in str(caught.value)
