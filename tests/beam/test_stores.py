"""Sinks that write to an object store by Beam's own client, and sources that read from there by ours."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import anyrecord
import apache_beam as beam
import pytest
from anyrecord.beam import ReadFromRecords, WriteToRecords, convert
from apache_beam.options.pipeline_options import PipelineOptions
from conformance.formats import FIRST_CASES, Case
from remote import servers
from remote.servers.moto import Moto
from remote.servers.server import ACCESS_KEY, SECRET_KEY

from .files import RECORDS, pipeline, read

pytestmark = [
    pytest.mark.framework,
    pytest.mark.filterwarnings("ignore:opening searched"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore"),
]


@pytest.fixture(scope="module")
def started() -> Iterator[Moto]:
    with servers.start("moto") as server:
        assert isinstance(server, Moto)
        yield server
        # Writers of failed attempts delete their files when they are collected. If the server is gone, Beam tries that
        # for minutes.
        gc.collect()


@pytest.fixture
def store(started: Moto) -> Moto:
    """An empty bucket."""
    started.empty()
    return started


def flags(store: Moto) -> list[str]:
    """How Beam's client reaches the store."""
    keys = [f"--s3_access_key_id={ACCESS_KEY}", f"--s3_secret_access_key={SECRET_KEY}"]
    return [*keys, f"--s3_endpoint_url={store.endpoint}", "--s3_region_name=us-east-1"]


@pytest.mark.parametrize("shards", [0, 2])
@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_shards_are_written_and_nothing_else_is_left(case: Case, shards: int, store: Moto) -> None:
    store.put("beside", b"stays")
    with pipeline(*flags(store)) as started:
        writing = WriteToRecords(store.url("some/out"), file_name_suffix=case.suffix, num_shards=shards)
        started | beam.Create(RECORDS) | writing
    count = max(1, shards)
    names = [f"some/out-{shard:05}-of-{count:05}{case.suffix}" for shard in range(count)]
    assert store.names() == ["beside", *names]
    assert store.uploads() == []
    pattern = store.url(f"some/out-*{case.suffix}")
    assert sorted(anyrecord.open(pattern, storage=store.storage)) == sorted(RECORDS)
    assert read(ReadFromRecords(pattern, storage=store.storage)) == sorted(RECORDS)


def test_what_failed_attempts_left_in_the_temporary_folder_is_deleted(store: Moto) -> None:
    with pipeline(*flags(store), "--direct_runner_bundle_repeat=1") as started:
        started | beam.Create(RECORDS) | WriteToRecords(store.url("some/out"), file_name_suffix=".ffr")
    assert store.names() == ["some/out-00000-of-00001.ffr"]


@pytest.mark.parametrize("target", ["new/", "new/a.array_record"])
def test_objects_are_converted(target: str, store: Moto) -> None:
    with anyrecord.create(store.url("old.tfrecord"), shards=2, storage=store.storage) as out:
        out.write_many(RECORDS)
    keywords: dict[str, Any] = {"format": "array_record", "storage": store.storage, "runner": "FnApiRunner"}
    options = PipelineOptions([*flags(store), "--direct_runner_bundle_repeat=1"])
    convert(store.url("old-*.tfrecord"), store.url(target), pipeline_options=options, **keywords)
    made = [name for name in store.names() if not name.startswith("old-")]
    assert all(name.startswith("new/") and name.endswith(".array_record") for name in made)
    found = anyrecord.open([store.url(name) for name in made], storage=store.storage)
    assert sorted(found) == sorted(RECORDS)


def test_a_conversion_that_fails_leaves_nothing(store: Moto) -> None:
    with anyrecord.create(store.url("old.tfrecord"), shards=2, storage=store.storage) as out:
        out.write_many(RECORDS)
    name = "old-00001-of-00002.tfrecord"
    data = bytearray(store.get(name) or b"")
    data[-1] ^= 1
    store.put(name, bytes(data))
    options, before = PipelineOptions(flags(store)), store.names()
    for target in ("new/", "new/a.array_record"):
        with pytest.raises(Exception, match="checksum"):
            convert(
                store.url("old-*.tfrecord"),
                store.url(target),
                pipeline_options=options,
                format="array_record",
                storage=store.storage,
                runner="FnApiRunner",
            )
        assert store.names() == before
