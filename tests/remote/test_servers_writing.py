"""Every server stores objects as its protocol says, as obstore, boto3 and plain HTTP see it."""

from __future__ import annotations

import base64
import hashlib
import random
import zlib
from collections.abc import Iterator
from typing import Any

import boto3
import obstore
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from . import servers
from .clients import Answer, ask, obstore_of
from .servers import BUCKET, Played, Server
from .servers.azure import authorization
from .servers.crc import crc32c, crc64nvme
from .servers.messages import Request
from .servers.server import ACCESS_KEY, SECRET_KEY

PART = random.Random(1).randbytes(5 << 20)
LAST = b"the last part may be small"


def start(name: str) -> Server:
    return Played() if name == "played s3" else servers.start(name)


S3 = ["moto", pytest.param("s3s", marks=pytest.mark.framework), "played s3"]


@pytest.fixture(scope="module", params=[*S3, "gcs", "azure", "webdav", "http"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with start(request.param) as started:
        yield started


@pytest.fixture(scope="module", params=S3)
def s3(request: pytest.FixtureRequest) -> Iterator[Server]:
    with start(request.param) as started:
        yield started


def boto(server: Server) -> Any:
    """Checksums that S3 does not need are left out: s3s-fs wants them again when the upload is completed."""
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(
            retries={"total_max_attempts": 1},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"},
        ),
    )


def test_a_server_says_what_it_has(server: Server) -> None:
    assert server.get("of us/a b") is None
    for key in ("of us/a b", "of us/b", "of us"[:2]):
        server.put(key, key.encode())
    assert server.get("of us/a b") == b"of us/a b"
    assert server.names() == ["of", "of us/a b", "of us/b"]
    assert server.uploads() == []


def test_names_come_from_more_than_one_page(s3: Server) -> None:
    names = [f"many/{number:03}" for number in range(120)]
    for name in names:
        s3.put(name, b"")
    assert [name for name in s3.names() if name.startswith("many/")] == names


class Upload:
    """An upload in parts, by boto3."""

    def __init__(self, server: Server, key: str) -> None:
        self.client, self.key = boto(server), {"Bucket": BUCKET, "Key": key}
        self.id = self.client.create_multipart_upload(**self.key)["UploadId"]

    def part(self, number: int, data: bytes) -> dict[str, Any]:
        made = self.client.upload_part(**self.key, UploadId=self.id, PartNumber=number, Body=data)
        return {"PartNumber": number, "ETag": made["ETag"]}

    def complete(self, *parts: dict[str, Any], **conditions: str) -> Any:
        return self.client.complete_multipart_upload(
            **self.key, UploadId=self.id, MultipartUpload={"Parts": list(parts)}, **conditions
        )

    def abort(self) -> None:
        self.client.abort_multipart_upload(**self.key, UploadId=self.id)


def code(raised: pytest.ExceptionInfo[ClientError]) -> str:
    found: str = raised.value.response["Error"]["Code"]
    return found


def test_boto3_uploads_in_parts(s3: Server) -> None:
    upload = Upload(s3, "parts/whole")
    assert upload.id in s3.uploads()
    first, last = upload.part(1, PART), upload.part(2, LAST)
    assert first["ETag"] == f'"{hashlib.md5(PART).hexdigest()}"'
    assert s3.get("parts/whole") is None
    assert "parts/whole" not in s3.names()
    made = upload.complete(first, last)
    assert s3.get("parts/whole") == PART + LAST
    digests = hashlib.md5(PART).digest() + hashlib.md5(LAST).digest()
    assert made["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-2"'
    assert upload.id not in s3.uploads()


def test_boto3_aborts_an_upload(s3: Server) -> None:
    upload = Upload(s3, "parts/aborted")
    upload.part(1, PART)
    assert upload.id in s3.uploads()
    upload.abort()
    assert upload.id not in s3.uploads()
    assert s3.get("parts/aborted") is None


def test_an_upload_is_completed_only_if_nothing_is_there(s3: Server) -> None:
    s3.put("parts/there", b"old")
    upload = Upload(s3, "parts/there")
    part = upload.part(1, LAST)
    with pytest.raises(ClientError) as raised:
        upload.complete(part, IfNoneMatch="*")
    assert code(raised) == "PreconditionFailed"
    assert s3.get("parts/there") == b"old"
    assert upload.id in s3.uploads()
    upload.complete(part)
    assert s3.get("parts/there") == LAST


def test_an_object_is_put_only_if_nothing_is_there(s3: Server) -> None:
    client = boto(s3)
    client.put_object(Bucket=BUCKET, Key="once", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError) as raised:
        client.put_object(Bucket=BUCKET, Key="once", Body=b"second", IfNoneMatch="*")
    assert code(raised) == "PreconditionFailed"
    assert s3.get("once") == b"first"


def test_a_part_that_is_too_small_is_refused() -> None:
    with Played() as server:
        upload = Upload(server, "small")
        parts = [upload.part(1, b"small"), upload.part(2, LAST)]
        with pytest.raises(ClientError) as raised:
            upload.complete(*parts)
        assert code(raised) == "EntityTooSmall"
        assert server.names() == []


def test_a_wrong_list_of_parts_is_refused() -> None:
    with Played() as server:
        upload = Upload(server, "listed")
        first, second = upload.part(1, PART), upload.part(2, LAST)
        wrong = {"InvalidPart": [first, {**second, "ETag": first["ETag"]}], "InvalidPartOrder": [second, first]}
        for said, parts in wrong.items():
            with pytest.raises(ClientError) as raised:
                upload.complete(*parts)
            assert code(raised) == said
        with pytest.raises(ClientError) as raised:
            upload.part(10_001, LAST)
        assert code(raised) == "InvalidArgument"
        assert server.uploads() == [upload.id]


def test_an_upload_that_is_over_is_not_known() -> None:
    with Played() as server:
        upload = Upload(server, "over")
        part = upload.part(1, LAST)
        upload.complete(part)
        for act in (lambda: upload.complete(part), upload.abort, lambda: upload.part(2, LAST)):
            with pytest.raises(ClientError) as raised:
                act()
            assert code(raised) == "NoSuchUpload"
        assert server.get("over") == LAST


def test_boto3_lists_uploads() -> None:
    with Played() as server:
        uploads = [Upload(server, key) for key in ("b", "a")]
        listed = boto(server).list_multipart_uploads(Bucket=BUCKET)["Uploads"]
        assert [(each["Key"], each["UploadId"]) for each in listed] == [("a", uploads[1].id), ("b", uploads[0].id)]


def test_an_etag_is_the_md5_of_what_boto3_puts(s3: Server) -> None:
    made = boto(s3).put_object(Bucket=BUCKET, Key="put", Body=LAST)
    assert made["ETag"] == f'"{hashlib.md5(LAST).hexdigest()}"'


def reference(data: bytes, bits: int, polynomial: int) -> int:
    """Bit by bit."""
    state = (1 << bits) - 1
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (polynomial if state & 1 else 0)
    return state ^ ((1 << bits) - 1)


def test_checksums_are_the_documented_ones() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc64nvme(b"123456789") == 0xAE8B14860A799888
    for size in (0, 1, 4095, 4096, 4097, 12_300):
        data = random.Random(size).randbytes(size)
        assert crc32c(data) == reference(data, 32, 0x82F63B78)
        assert crc64nvme(data) == reference(data, 64, 0x9A6C9329AC4BC9B5)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


BODY = b"123456789"
CHECKSUMS = {
    "Content-MD5": encoded(hashlib.md5(BODY).digest()),
    "x-amz-checksum-crc32": encoded(zlib.crc32(BODY).to_bytes(4, "big")),
    "x-amz-checksum-crc32c": encoded(0xE3069283.to_bytes(4, "big")),
    "x-amz-checksum-crc64nvme": encoded(0xAE8B14860A799888.to_bytes(8, "big")),
    "x-amz-checksum-sha1": encoded(hashlib.sha1(BODY).digest()),
    "x-amz-checksum-sha256": encoded(hashlib.sha256(BODY).digest()),
    "x-amz-content-sha256": hashlib.sha256(BODY).hexdigest(),
    "x-goog-hash": f"crc32c={encoded(0xE3069283.to_bytes(4, 'big'))},md5={encoded(hashlib.md5(BODY).digest())}",
}


@pytest.mark.parametrize("header", CHECKSUMS)
def test_a_wrong_checksum_is_refused(header: str) -> None:
    sent = {header: CHECKSUMS[header]}
    with Played(protocol="gcs" if "goog" in header else "s3") as server:
        assert ask(server, "/bucket/a", "PUT", BODY, **sent).status == 200
        refused = ask(server, "/bucket/b", "PUT", BODY + b"0", **sent)
        assert refused.status == 400
        code = b"XAmzContentSHA256Mismatch" if header == "x-amz-content-sha256" else b"BadDigest"
        assert b"<Code>%b</Code>" % code in refused.body
        assert server.names() == ["a"]


def test_boto3_sends_a_checksum_that_is_right() -> None:
    with Played() as server:
        client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        client.put_object(Bucket=BUCKET, Key="a", Body=PART)
        assert server.get("a") == PART
        assert "x-amz-checksum-crc32" in server.log[0].headers


def test_google_says_hashes_of_what_it_stored() -> None:
    with Played(protocol="gcs") as server:
        md5 = encoded(hashlib.md5(BODY).digest())
        crc = encoded(0xE3069283.to_bytes(4, "big"))
        put = ask(server, "/bucket/a", "PUT", BODY, x_goog_if_generation_match="0")
        assert put.headers["x-goog-hash"] == f"crc32c={crc},md5={md5}"
        assert ask(server, "/bucket/a", "PUT", b"other", x_goog_if_generation_match="0").status == 412
        begun = ask(server, "/bucket/b?uploads", "POST").body.decode()
        upload = begun.partition("<UploadId>")[2].partition("</UploadId>")[0]
        assert server.uploads() == [upload]
        part = ask(server, f"/bucket/b?uploadId={upload}&partNumber=1", "PUT", BODY)
        assert part.headers["x-goog-hash"] == f"crc32c={crc},md5={md5}"
        listed = f"<Part><PartNumber>1</PartNumber><ETag>{part.headers['etag']}</ETag></Part>"
        body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        target = f"/bucket/b?uploadId={upload}"
        assert ask(server, target, "POST", body, x_goog_if_generation_match="0").status == 501
        whole = ask(server, target, "POST", body)
        assert whole.headers["x-goog-hash"] == f"crc32c={crc}"
        assert "md5" not in ask(server, "/bucket/b").headers["x-goog-hash"]
        assert hashlib.md5(BODY).hexdigest() not in whole.headers["etag"]
        assert server.get("b") == BODY
        assert server.uploads() == []


def azure(server: Server, path: str, method: str, body: bytes, query: dict[str, str], **headers: str) -> Answer:
    """A request with the signature of the account."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"x-ms-version": "2023-11-03", "content-length": str(len(body)), **sent}
    target = path + ("?" + "&".join(f"{name}={value}" for name, value in query.items()) if query else "")
    signed = authorization(Request(method, target, path, query, sent))
    return ask(
        server,
        target,
        method,
        body,
        **{name: value for name, value in sent.items() if name != "content-length"},
        authorization=signed,
    )


def test_azure_says_a_checksum_of_what_it_received() -> None:
    with Played(protocol="azure") as server:
        md5, blob = encoded(hashlib.md5(BODY).digest()), {"x_ms_blob_type": "BlockBlob"}
        crc = encoded(0xAE8B14860A799888.to_bytes(8, "little"))
        put = azure(server, "/bucket/a", "PUT", BODY, {}, **blob, if_none_match="*")
        assert (put.status, put.headers.get("content-md5"), put.headers["x-ms-content-crc64"]) == (201, None, crc)
        assert azure(server, "/bucket/a", "PUT", BODY, {}, **blob, if_none_match="*").status == 409
        put = azure(server, "/bucket/a", "PUT", BODY, {}, **blob, content_md5=md5)
        assert (put.headers["content-md5"], put.headers.get("x-ms-content-crc64")) == (md5, None)
        for name, value in {"content_md5": md5, "x_ms_content_crc64": crc}.items():
            assert azure(server, "/bucket/b", "PUT", BODY + b"0", {}, **blob, **{name: value}).status == 400
        block = azure(server, "/bucket/c", "PUT", BODY, {"comp": "block", "blockid": "AAAA"})
        assert (block.status, block.headers["x-ms-content-crc64"]) == (201, crc)
        assert azure(server, "/bucket/c", "PUT", BODY, {"comp": "block", "blockid": "AAAAAAAA"}).status == 400
        assert (server.names(), server.uploads()) == (["a"], ["c"])
        blocks = b"<BlockList><Latest>AAAA</Latest></BlockList>"
        assert azure(server, "/bucket/c", "PUT", blocks, {"comp": "blocklist"}, if_none_match="*").status == 201
        assert azure(server, "/bucket/c", "PUT", blocks, {"comp": "blocklist"}).status == 400
        assert (server.get("c"), server.uploads()) == (BODY, [])


def test_azure_keeps_blocks_that_are_not_committed() -> None:
    with Played(protocol="azure") as server:
        writer = obstore.open_writer(obstore_of(server), "half", buffer_size=1 << 20)
        writer.write(PART)
        writer.flush()
        assert server.names() == []
        writer.close()
        assert server.names() == ["half"]
        assert server.uploads() == []


def test_a_web_server_stores_what_is_put() -> None:
    with Played(protocol="http") as server:
        assert ask(server, "/a/b", "PUT", BODY, if_none_match="*").status == 201
        assert ask(server, "/a/b", "PUT", b"other", if_none_match="*").status == 412
        assert server.get("a/b") == ask(server, "/a/b").body == BODY
        assert ask(server, "/a/b", "PUT", b"other").status == 204
        assert ask(server, "/a/b", "DELETE").status == 204
        assert (server.names(), ask(server, "/a/b", "DELETE").status) == ([], 404)
