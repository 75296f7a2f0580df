"""What `storage=` can be: options, stores of obstore, file systems of fsspec."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from datetime import timedelta
from fractions import Fraction
from typing import Any

import anyrecord
import fsspec
import numpy
import obstore
import pytest
from anyrecord._stores import resolve
from children import forked
from fsspec.implementations.dirfs import DirFileSystem
from obstore.store import AzureStore, GCSStore, HTTPStore, LocalStore, MemoryStore, S3Store

from .clients import obstore_of
from .files import bytes_of
from .places import credentials
from .servers import BUCKET, Played

RECORDS = [b"%d" % i * 100 for i in range(50)]


def file_of(format: str = "ffrecord") -> bytes:
    return bytes_of(format, RECORDS)


# Objects are taken apart

S3_OPTIONS: Any = {"region": "r", "access_key_id": "a", "secret_access_key": "s", "endpoint": "http://h"}
APART: dict[str, tuple[Any, str, dict[str, str]]] = {
    "s3": (S3Store("b", config=S3_OPTIONS), "s3://b/", S3_OPTIONS),
    "prefix": (S3Store("b", prefix="/a/b/", config=S3_OPTIONS), "s3://b/a/b/", S3_OPTIONS),
    "gcs": (GCSStore("b", skip_signature=True), "gs://b/", {"skip_signature": "true"}),
    "azure": (
        AzureStore("c", account_name="n", account_key="a2V5"),
        "az://c/",
        {"account_name": "n", "account_key": "a2V5"},
    ),
    "http": (HTTPStore("http://h:1/p", client_options={"timeout": "5s"}), "http://h:1/p/", {"timeout": "5s"}),
    "retries": (
        GCSStore(
            "b",
            skip_signature=True,
            retry_config={
                "max_retries": 3,
                "retry_timeout": timedelta(seconds=9),
                "backoff": {"init_backoff": timedelta(seconds=1), "max_backoff": timedelta(seconds=2), "base": 2},
            },
        ),
        "gs://b/",
        {
            "skip_signature": "true",
            "max_retries": "3",
            "retry_timeout": "9s",
            "init_backoff": "1s",
            "max_backoff": "2s",
        },
    ),
}


@pytest.mark.parametrize("name", APART)
def test_stores_of_obstore_become_a_url_and_options(name: str) -> None:
    store, base, options = APART[name]
    found = resolve(store)
    assert found.root is not None
    assert found.root.base == base
    assert dict(found.options) == options
    assert found.root.path("x/y.ffr") == f"{base}x/y.ffr"
    assert found.root.path(f"{base}y.ffr") == f"{base}y.ffr"
    for outside in ("s3://another/y.ffr", "../y.ffr", "x/../../y.ffr", f"{base}../y.ffr", "%2e%2E/y.ffr", "x/..", ".."):
        with pytest.raises(ValueError, match=r"is not in the store of storage=|names no object"):
            found.root.path(outside)


def test_headers_of_a_store_are_sent() -> None:
    with Played({"a.ffr": file_of()}, protocol="http") as server:
        headers: Any = {"x-own": "1"}
        store = HTTPStore(server.endpoint, client_options={"default_headers": headers, "allow_http": True})
        assert anyrecord.open("a.ffr", storage=store)[5] == RECORDS[5]
        assert {entry.headers.get("x-own") for entry in server.log} == {"1"}


def test_a_local_store_is_a_local_folder(tmp_path: Any) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.ffr").write_bytes(file_of())
    for source in ("data/a.ffr", "data", "data/*.ffr", str(tmp_path / "data" / "a.ffr")):
        records = anyrecord.open(source, storage=LocalStore(tmp_path))
        assert records.paths == [str(tmp_path / "data" / "a.ffr")]
        assert records[5] == RECORDS[5]
    (tmp_path / "b.ffr").write_bytes(file_of())
    for outside in ("../b.ffr", "x/../../b.ffr", str(tmp_path / "b.ffr"), f"{tmp_path}/data/../b.ffr", "*/../../b.ffr"):
        with pytest.raises(ValueError, match="is not in the store of storage="):
            anyrecord.open(outside, storage=LocalStore(tmp_path / "data"))
    for source in ("data/a.ffr", "file://" + str(tmp_path / "data" / "a.ffr")):
        assert len(anyrecord.open(source, storage=fsspec.filesystem("file"))) == len(RECORDS)


def test_a_store_with_a_prefix_reads_below_it() -> None:
    with Played({"deep/down/a.ffr": file_of()}) as server:
        client: Any = {"allow_http": True}
        config: Any = {name.removeprefix("aws_"): value for name, value in server.storage.items()}
        del config["allow_http"]
        store = S3Store(BUCKET, prefix="deep", config=config, client_options=client)
        for source in ("down/a.ffr", "down/", "*/a.ffr"):
            records = anyrecord.open(source, storage=store)
            assert records.paths == [server.url("deep/down/a.ffr")]
            assert records[7] == RECORDS[7]
        assert pickle.loads(pickle.dumps(records))[9] == RECORDS[9]


@pytest.mark.parametrize("wrong", [3, "s3://bucket", [("region", "x")], object()])
def test_anything_else_is_a_type_error_that_says_what_is_taken(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a dict of options, an obstore store or an fsspec file system"):
        anyrecord.open("a.ffr", storage=wrong)


# Options

NUMBERS: dict[str, tuple[Any, str]] = {
    "int": (3, "3"),
    "numpy int": (numpy.int64(3), "3"),
    "whole float": (3.0, "3"),
    "numpy float": (numpy.float32(0.5), "0.5"),
    "large float": (1e22, "10000000000000000000000"),
    "small float": (1e-7, "0.0000001"),
    "fraction": (Fraction(1, 4), "0.25"),
    "short time": (timedelta(microseconds=1), "0.000001s"),
    "long time": (timedelta(days=1), "86400s"),
    "bool": (True, "true"),
    "numpy bool": (numpy.bool_(False), "false"),
    "text": ("1e3", "1e3"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_written_without_exponents(name: str) -> None:
    value, text = NUMBERS[name]
    assert resolve({"x": value}).options == (("x", text),)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), {"a": 1}, [1], b"x", object(), 1j])
def test_an_option_that_is_no_text_and_no_number_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="storage option 'x' must be a str, a number or a bool"):
        resolve({"x": wrong})


def test_numbers_of_other_libraries_are_options() -> None:
    with Played({"a.ffr": file_of()}) as server:
        options = {"max_requests": numpy.int64(3), "retry_timeout": timedelta(seconds=60), "part_size": 1e6}
        assert anyrecord.open(server.url("a.ffr"), storage={**server.storage, **options})[5] == RECORDS[5]


@pytest.mark.parametrize(
    "option", ["bucket", "aws_bucket_name", "google_bucket", "azure_container_name", "BUCKET_NAME"]
)
def test_the_url_names_the_bucket_and_no_option_does(option: str) -> None:
    with pytest.raises(ValueError, match=f"storage option '{option}' is not valid: the URL names the bucket"):
        anyrecord.open("s3://bucket/a.ffr", storage={option: "other"})


# Objects that are asked for bytes


def memory_store() -> tuple[Any, str]:
    store = MemoryStore()
    obstore.put(store, "a.ffr", file_of())
    return store, "a.ffr"


def memory_files() -> tuple[Any, str]:
    fs = fsspec.filesystem("memory")
    fs.pipe("/storage-tests/a.ffr", file_of())
    return fs, "/storage-tests/a.ffr"


def folder_files() -> tuple[Any, str]:
    fs, _ = memory_files()
    return DirFileSystem(path="/storage-tests", fs=fs), "a.ffr"


ASKED = {"obstore": memory_store, "fsspec": memory_files, "fsspec folder": folder_files}


@pytest.mark.parametrize("make", ASKED.values(), ids=list(ASKED))
def test_many_records_are_asked_for_with_one_call(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, path = make()
    records = anyrecord.open(path, storage=store)
    before = records.stats()
    assert records[[40, 3, 17]] == [RECORDS[40], RECORDS[3], RECORDS[17]]
    after = records.stats()
    assert after.requests - before.requests == 2  # the ranges, and whether it is still the same object
    assert after.bytes > before.bytes


def replace(store: Any, path: str, data: bytes) -> None:
    if isinstance(store, MemoryStore):
        obstore.put(store, path, data)
    else:
        store.pipe(path, data)


@pytest.mark.parametrize("make", [memory_store, memory_files], ids=["obstore", "fsspec"])
def test_an_object_that_is_replaced_is_an_error(make: Any) -> None:
    store, path = make()
    records = anyrecord.open(path, storage=store)
    replace(store, path, file_of())  # the same bytes; still, nobody can know that
    with pytest.raises(anyrecord.FormatError, match="changed after it was opened; open it again"):
        records[3]


@pytest.mark.parametrize("make", ASKED.values(), ids=list(ASKED))
def test_a_missing_object_is_not_found(make: Any) -> None:
    store, _ = make()
    with pytest.raises(FileNotFoundError, match=r"missing\.ffr"):
        anyrecord.open("missing.ffr", storage=store)


def test_records_of_a_file_system_can_be_pickled_and_those_of_a_memory_store_cannot() -> None:
    fs, path = memory_files()
    copy = pickle.loads(pickle.dumps(anyrecord.open(path, storage=fs)))
    assert (copy[5], copy.paths) == (RECORDS[5], [path])
    store, path = memory_store()
    with pytest.raises(TypeError, match=r"records of this MemoryStore cannot be pickled.*open them in each process"):
        pickle.dumps(anyrecord.open(path, storage=store))


def test_a_store_with_a_credential_provider_is_asked_and_pickled_with_it() -> None:
    with Played({"a.ffr": file_of()}) as server:
        client: Any = {"allow_http": True}
        store = S3Store(
            BUCKET, endpoint=server.endpoint, region="r", client_options=client, credential_provider=credentials
        )
        records = anyrecord.open("a.ffr", storage=store)
        assert records.paths == ["a.ffr"]
        assert pickle.loads(pickle.dumps(records))[[3, 4]] == RECORDS[3:5]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_store_that_cannot_be_used_after_a_fork_says_so_and_does_not_hang() -> None:
    store, path = memory_store()
    records = anyrecord.open(path, storage=store)

    def read() -> list[str]:
        said = []
        for act in (lambda: records[3], lambda: anyrecord.open("a.ffr", storage=MemoryStore())):
            try:
                said.append(str(act()))
            except OSError as error:
                said.append(str(error))
        return said

    for said in forked(read):
        assert "an obstore store cannot be used in a forked process" in said
        assert "a.ffr" in said
    assert records[3] == RECORDS[3]


def test_file_objects_of_a_file_system_are_read() -> None:
    fs, path = memory_files()
    with fs.open(path) as file:
        assert anyrecord.open(file)[3] == RECORDS[3]


def test_concatenated_records_of_one_store_are_read_and_pickled() -> None:
    with Played({"a.ffr": file_of(), "b.ffr": file_of()}) as server:
        parts = [anyrecord.open(name, storage=obstore_of(server)) for name in ("a.ffr", "b.ffr")]
        both = anyrecord.concat(parts)
        assert pickle.loads(pickle.dumps(both))[len(RECORDS) + 1] == RECORDS[1]
        assert len(anyrecord.mix(parts, [1, 1])) > 0


def test_a_file_system_has_schemes_of_its_own() -> None:
    fs, path = memory_files()
    records = anyrecord.open(f"memory:/{path}", storage=fs)
    assert records.paths == [path]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("data/a.ffr", file_of())
    packed = fsspec.filesystem("zip", fo=archive)
    for source in ("zip://data/a.ffr", "data/a.ffr", "data/*.ffr", "data"):
        assert anyrecord.open(source, storage=packed)[8] == RECORDS[8]


def test_what_reads_only_local_folders_says_so() -> None:
    with pytest.raises(ValueError, match="only a local folder can be packed"):
        anyrecord.pack("s3://bucket/folder", "out.ffr")
