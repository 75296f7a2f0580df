"""Uploads in parts, as S3 and Google Cloud Storage have them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from .documents import children, element, text_of, xml
from .messages import Request, Response
from .objects import Objects
from .server import BUCKET

if TYPE_CHECKING:
    from .s3 import S3

LEAST_PART_BYTES = 5 << 20
"""Of all parts but the last."""
MOST_PARTS = 10_000
_XML = {"content-type": "application/xml"}


def answer(protocol: S3, request: Request, objects: Objects, key: str) -> Response:
    """The answer to a request that begins an upload or belongs to one."""
    if request.method == "POST" and "uploads" in request.query:
        said = [element("Bucket", BUCKET), element("Key", key), element("UploadId", objects.begin_upload(key))]
        return Response(200, _XML, xml("InitiateMultipartUploadResult", *said))
    name = request.query.get("uploadId", "")
    upload = objects.uploads.get(name)
    if upload is None or upload.key != key:
        return protocol.error(404, "NoSuchUpload", "The specified multipart upload does not exist.")
    match request.method:
        case "PUT":
            number = request.query["partNumber"]
            if not 1 <= int(number) <= MOST_PARTS:
                return protocol.error(400, "InvalidArgument", f"Part number must be between 1 and {MOST_PARTS}")
            upload.parts[number] = request.body
            return Response(200, protocol.part_headers(request.body))
        case "POST":
            return _complete(protocol, request, objects, key, name)
        case "DELETE":
            del objects.uploads[name]
            return Response(204)
    return protocol.error(405, "MethodNotAllowed", f"{request.method} is not allowed")


def _complete(protocol: S3, request: Request, objects: Objects, key: str, name: str) -> Response:
    found = objects.uploads[name].parts
    listed = [(text_of(part, "PartNumber"), text_of(part, "ETag")) for part in children(request.body, "Part")]
    numbers = [number for number, _ in listed]
    if numbers != sorted(set(numbers), key=int):
        return protocol.error(400, "InvalidPartOrder", "The list of parts was not in ascending order.")
    if not listed or any(number not in found or part_etag(found[number]) != _quoted(etag) for number, etag in listed):
        return protocol.error(400, "InvalidPart", "One or more of the specified parts could not be found.")
    parts = [found[number] for number in numbers]
    if any(len(part) < LEAST_PART_BYTES for part in parts[:-1]):
        return protocol.error(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size")
    made = protocol.complete(request, objects, key, parts)
    if isinstance(made, Response):
        return made
    del objects.uploads[name]
    said = [element("Bucket", BUCKET), element("Key", key), element("ETag", made.etag)]
    return Response(200, {**_XML, **protocol.headers(made)}, xml("CompleteMultipartUploadResult", *said))


def listing(objects: Objects) -> Response:
    """The uploads that were begun and neither completed nor aborted. There is one page."""
    said = [element("Bucket", BUCKET), element("IsTruncated", "false")]
    for name, upload in sorted(objects.uploads.items(), key=lambda each: each[1].key):
        said.append(f"<Upload>{element('Key', upload.key)}{element('UploadId', name)}</Upload>")
    return Response(200, _XML, xml("ListMultipartUploadsResult", *said))


def part_etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _quoted(etag: str) -> str:
    """Clients may leave the quotes out."""
    return etag if etag.startswith('"') else f'"{etag}"'


def whole_etag(parts: list[bytes]) -> str:
    """As S3 makes it of an object that was stored in parts."""
    digests = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in parts)
    return f'"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"'
