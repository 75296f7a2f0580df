"""Whether a store has told the right checksums of what it received: a writer says so only if it did."""

from __future__ import annotations

from typing import Any

import anyrecord
import pytest

from .servers import Played, faults, s3
from .test_uploads import FEW, PROTOCOLS, QUICK, SIZES

SILENT: dict[str, tuple[Any, dict[str, str | None], dict[str, Any]]] = {
    "S3 with a key of KMS": ("s3", {"x-amz-server-side-encryption": "aws:kms"}, {}),
    "S3 with a key of the customer": ("s3", {"x-amz-server-side-encryption-customer-algorithm": "AES256"}, {}),
    "GCS without hashes": ("gcs", {"x-goog-hash": None}, {}),
    "Azure without hashes": ("azure", {"x-ms-content-crc64": None, "content-md5": None}, {}),
    **{f"check_uploads={value}": ("s3", {}, {"check_uploads": value}) for value in (False, "no", "off", "0")},
}
"""Answers and options with which nothing is compared. The first ones change the headers of an answer."""


def written(server: Played, records: list[bytes], **options: Any) -> anyrecord.Writer:
    storage = {**server.storage, **QUICK, **options}
    with anyrecord.create(server.url("a.ffr"), storage=storage, num_records=len(records)) as out:
        assert not out._is_compared()
        out.write_many(records)
    return out


def begun(server: Played, **options: Any) -> anyrecord.Writer:
    storage = {**server.storage, **QUICK, **options}
    return anyrecord.create(server.url("a.ffr"), storage=storage, overwrite=True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("size", SIZES)
def test_a_store_that_tells_checksums_has_compared(protocol: Any, size: str) -> None:
    with Played(protocol=protocol) as server:
        assert written(server, SIZES[size])._is_compared()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SILENT)
def test_a_store_that_tells_no_checksum_has_not_compared(name: str, size: str) -> None:
    protocol, headers, options = SILENT[name]
    with Played(protocol=protocol) as server:
        server.play(faults.headers(**headers), operation="part" if size == "many parts" else "put")
        assert not written(server, SIZES[size], **options)._is_compared()


@pytest.mark.parametrize("part", ["1", "2", "3", "4"])
def test_one_part_without_a_checksum_is_enough(part: str) -> None:
    with Played() as server:
        fault = faults.headers(**{"x-amz-server-side-encryption": "aws:kms"})
        rule = server.play(fault, when=lambda request: request.query.get("partNumber") == part)
        assert not written(server, SIZES["many parts"])._is_compared()
        assert rule.played == 1


@pytest.mark.parametrize("size", SIZES)
def test_the_tags_of_a_directory_bucket_are_not_compared(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "BUCKET", "bucket--x-s3")
    with Played() as server:
        assert not written(server, SIZES[size])._is_compared()


@pytest.mark.parametrize("kind", ["directory bucket", "not checked"])
def test_the_journal_of_a_set_can_have_a_tag_that_is_no_checksum(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "directory bucket":
        monkeypatch.setattr(s3, "BUCKET", "bucket--x-s3")
    with Played() as server:
        journal = server.play(faults.headers(etag=f'"{32 * "0"}"'), operation="put")
        storage = {**server.storage, **QUICK, **({} if kind == "directory bucket" else {"check_uploads": False})}
        with anyrecord.create(server.url("a.ffr"), storage=storage, shards=2) as out:
            out.write_many(FEW)
        assert sorted(anyrecord.open(server.url("a.ffr@2"), storage=storage)) == sorted(FEW)
        assert journal.played == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_object_that_is_read_again_because_the_answer_was_lost_is_compared(protocol: Any) -> None:
    with Played(protocol=protocol) as server:
        server.play(faults.reset(), operation="put", times=1)
        assert written(server, FEW)._is_compared()


def test_a_tag_of_another_form_is_not_compared() -> None:
    with Played() as server:
        server.play(faults.headers(etag='"0123456789"'), operation="put")
        assert not written(server, FEW)._is_compared()


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_set_is_known_when_it_is_sealed_and_after_it_is_published(protocol: Any, is_told: bool) -> None:
    with Played(protocol=protocol) as server:
        options = {} if is_told else {"check_uploads": "no"}
        storage = {**server.storage, **QUICK, **options}
        out = anyrecord.create(server.url("a.ffr"), shards=2, storage=storage)
        out.write_many(FEW)
        out._seal()
        assert out._is_compared() == is_told
        out.close()
        assert out._is_compared() == is_told


@pytest.mark.parametrize("is_told", [True, False])
def test_an_upload_of_another_process_is_compared_if_that_one_says_so(is_told: bool) -> None:
    with Played() as server:
        first = begun(server)
        first.write_many(SIZES["many parts"])
        first._seal()
        assert first._is_compared()
        found = first._finished()
        assert found is not None
        first._leave()
        second = begun(server)
        second._adopt(*found, is_told)
        assert second._is_compared() == is_told
        second._publish()
        assert second._is_compared() == is_told
        third = begun(server)
        third._adopt(*found)
        assert not third._is_compared()
        third._leave()


def test_files_are_compared_by_no_store(tmp_path: Any) -> None:
    for path in (f"{tmp_path}/a.ffr", "memory://compared/a.ffr"):
        with anyrecord.create(path) as out:
            out.write_many(FEW)
        assert not out._is_compared()
    with Played(protocol="http") as server:
        assert not written(server, FEW)._is_compared()
