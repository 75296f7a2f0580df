"""The S3 REST API with the bucket in the path, as far as the object_store crate uses it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import unquote

from . import multipart
from .checksums import wrong_checksum
from .documents import children, element, text_of, xml
from .messages import Request, Response, failed_condition, http_date, ranged
from .objects import Object, Objects
from .protocol import Protocol
from .server import BUCKET, s3_storage


class S3(Protocol):
    """Signatures are not checked. Checksums are, where the client sends them."""

    scheme = "s3"
    copy_header = "x-amz-copy-source"

    def url(self, endpoint: str, key: str) -> str:
        return f"{self.scheme}://{BUCKET}/{key}"

    def storage(self, endpoint: str) -> dict[str, str]:
        return s3_storage(endpoint)

    def key(self, request: Request) -> str:
        return request.path.lstrip("/").partition("/")[2]

    def error(self, status: int, code: str, message: str) -> Response:
        body = xml("Error", element("Code", code), element("Message", message), element("RequestId", "0"))
        return Response(status, {"content-type": "application/xml"}, body)

    def answer(self, request: Request, objects: Objects) -> Response:
        bucket, _, key = request.path.lstrip("/").partition("/")
        if bucket != BUCKET:
            return self.error(404, "NoSuchBucket", f"The bucket {bucket} does not exist")
        if header := wrong_checksum(request):
            code = "XAmzContentSHA256Mismatch" if header == "x-amz-content-sha256" else "BadDigest"
            return self.error(400, code, f"The {header} you specified did not match what we received.")
        if not key:
            return self._of_bucket(request, objects)
        if "uploads" in request.query or "uploadId" in request.query:
            return multipart.answer(self, request, objects, key)
        match request.method:
            case "GET" | "HEAD":
                return self._get(request, objects.get(key))
            case "PUT":
                return self._put(request, objects, key)
            case "DELETE":
                return self.delete(request, objects, key)
        return self.error(405, "MethodNotAllowed", f"{request.method} is not allowed")

    # What Google Cloud Storage has otherwise.

    def headers(self, found: Object) -> dict[str, str]:
        """What is said of an object beside its data."""
        return {"etag": found.etag, "last-modified": http_date(found.modified)}

    def failed(self, request: Request, found: Object | None) -> int | None:
        """The status if a condition of the request does not hold."""
        return failed_condition(request, found)

    def missing(self, request: Request, found: Object | None) -> bool:
        """Whether the version that is asked for does not exist."""
        return found is None

    def part_headers(self, data: bytes) -> dict[str, str]:
        """What is said of a part of an upload."""
        return {"etag": multipart.part_etag(data)}

    def complete(self, request: Request, objects: Objects, key: str, parts: list[bytes]) -> Object | Response:
        """Makes an object of the parts of an upload, if the conditions of the request hold."""
        refused = self._refused(request, objects, key)
        return refused or objects.put(key, b"".join(parts), multipart.whole_etag(parts))

    def delete(self, request: Request, objects: Objects, key: str) -> Response:
        objects.delete(key)  # S3 does not say whether it was there
        return Response(204)

    def _get(self, request: Request, found: Object | None) -> Response:
        if found is None or self.missing(request, found):
            return self.no_such_key()
        if (status := self.failed(request, found)) == 304:
            return Response(304, self.headers(found))
        if status:
            return self.unmet(status)
        answer = ranged(request, found, request.headers.get("range"))
        if answer.status == 416:
            said = self.error(416, "InvalidRange", "The requested range is not satisfiable")
            return Response(416, {**said.headers, **answer.headers}, said.body)
        headers = {"content-type": "application/octet-stream", **self.headers(found), **answer.headers}
        return Response(answer.status, headers, answer.body)

    def _put(self, request: Request, objects: Objects, key: str) -> Response:
        source = request.headers.get(self.copy_header)
        data = request.body
        if source is not None:
            original = objects.get(unquote(source).lstrip("/").partition("/")[2])
            if original is None:
                return self.no_such_key()
            data = original.data
        if refused := self._refused(request, objects, key):
            return refused
        made = objects.put(key, data)
        if source is None:
            return Response(200, self.headers(made))
        body = xml("CopyObjectResult", element("ETag", made.etag), element("LastModified", timestamp(made.modified)))
        return Response(200, {"content-type": "application/xml", **self.headers(made)}, body)

    def _refused(self, request: Request, objects: Objects, key: str) -> Response | None:
        """An answer to a write whose condition does not hold."""
        found = objects.get(key)
        if found is None and "if-match" in request.headers:
            return self.no_such_key()
        status = self.failed(request, found)
        return self.unmet(status) if status else None

    def no_such_key(self) -> Response:
        return self.error(404, "NoSuchKey", "The specified key does not exist.")

    def unmet(self, status: int) -> Response:
        return self.error(status, "PreconditionFailed", "At least one of the preconditions did not hold")

    def _of_bucket(self, request: Request, objects: Objects) -> Response:
        if request.method == "GET" and "uploads" in request.query:
            return multipart.listing(objects)
        if request.method in ("GET", "HEAD"):
            return self._list(request.query, objects)
        if request.method == "POST" and "delete" in request.query:
            names = [text_of(child, "Key") for child in children(request.body, "Object")]
            for name in names:
                objects.delete(name)
            deleted = [f"<Deleted>{element('Key', name)}</Deleted>" for name in names]
            return Response(200, {"content-type": "application/xml"}, xml("DeleteResult", *deleted))
        return self.error(405, "MethodNotAllowed", f"{request.method} is not allowed")

    def _list(self, query: Mapping[str, str], objects: Objects) -> Response:
        limit = min(int(query.get("max-keys", self.page)), self.page)
        token = query.get("continuation-token")
        page = objects.page(
            query.get("prefix", ""),
            query.get("delimiter", ""),
            base64.urlsafe_b64decode(token).decode() if token else None,
            limit,
            after=query.get("start-after", ""),
        )
        said = [element("Name", BUCKET), element("Prefix", query.get("prefix", "")), element("MaxKeys", limit)]
        said.append(element("KeyCount", len(page.objects) + len(page.prefixes)))
        said.append(element("IsTruncated", "false" if page.next_marker is None else "true"))
        if page.next_marker is not None:
            said.append(element("NextContinuationToken", base64.urlsafe_b64encode(page.next_marker.encode()).decode()))
        for key, found in page.objects.items():
            about = [element("Key", key), element("LastModified", timestamp(found.modified))]
            about += [element("ETag", found.etag), element("Size", len(found.data))]
            said.append(f"<Contents>{''.join(about)}</Contents>")
        said += [f"<CommonPrefixes>{element('Prefix', prefix)}</CommonPrefixes>" for prefix in page.prefixes]
        return Response(200, {"content-type": "application/xml"}, xml("ListBucketResult", *said))


def timestamp(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%S.000Z")
