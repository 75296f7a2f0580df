"""Azure's Blob service, as far as the object_store crate uses it. Our own: it follows the documentation."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree

from .checksums import azure_crc64, md5, wrong_checksum
from .documents import element, xml
from .messages import Request, Response, failed_condition, http_date, ranged
from .objects import Object, Objects, Upload
from .protocol import Protocol
from .server import BUCKET

ACCOUNT = "testaccount"
KEY = base64.b64encode(b"a key of the tests").decode()

_XML = {"content-type": "application/xml"}
_RANGE = re.compile(r"bytes=\d+-\d*$")
_SIGNED = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)
"""The standard headers that a signature covers, in this order."""


class Azure(Protocol):
    """Requests have to be signed with the account's key. Ranges have a start: Azure has no suffix ranges."""

    scheme = "az"

    def objects(self) -> Objects:
        return Objects(lambda data, generation: f'"0x8DF{generation:X}"')

    def url(self, endpoint: str, key: str) -> str:
        return f"{self.scheme}://{BUCKET}/{key}"

    def storage(self, endpoint: str) -> dict[str, str]:
        return {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": KEY,
            "azure_endpoint": endpoint,
            "azure_allow_http": "true",
        }

    def key(self, request: Request) -> str:
        return request.path.lstrip("/").partition("/")[2]

    def error(self, status: int, code: str, message: str) -> Response:
        headers = {**_XML, "x-ms-error-code": code}
        return Response(status, headers, xml("Error", element("Code", code), element("Message", message)))

    def answer(self, request: Request, objects: Objects) -> Response:
        if not is_signed(request):
            return self.error(403, "AuthenticationFailed", "Server failed to authenticate the request.")
        container, _, key = request.path.lstrip("/").partition("/")
        if container != BUCKET:
            return self.error(404, "ContainerNotFound", "The specified container does not exist.")
        if header := wrong_checksum(request):
            code = "Md5Mismatch" if header == "content-md5" else "Crc64Mismatch"
            return self.error(400, code, f"The {header} value specified in the request did not match.")
        action = request.query.get("comp")
        match request.method, action:
            case ("GET", "list") if not key:
                return self._list(request.query, objects)
            case ("POST", "batch") if not key:
                return self._batch(request, objects)
            case (("GET" | "HEAD"), None) if key:
                return self._get(request, objects.get(key))
            case ("PUT", None) if key:
                return self._put(request, objects, key)
            case ("PUT", "block") if key:
                return self._put_block(request, objects, key)
            case ("PUT", "blocklist") if key:
                return self._put_block_list(request, objects, key)
            case ("DELETE", None) if key:
                return self._delete(request, objects, key)
        return self.error(400, "InvalidQueryParameterValue", f"{request.method} {request.target} is not known here")

    def _get(self, request: Request, found: Object | None) -> Response:
        if found is None:
            return self._not_found()
        if (status := failed_condition(request, found)) == 304:
            return Response(304, _about(found))
        if status:
            return self._unmet()
        wanted = request.headers.get("x-ms-range", request.headers.get("range"))
        if wanted is not None and not _RANGE.match(wanted):
            return self.error(400, "InvalidHeaderValue", f"The value of the header Range is not valid: {wanted}")
        answer = ranged(request, found, wanted)
        if answer.status == 416:
            said = self.error(416, "InvalidRange", "The range specified is invalid for the current size.")
            return Response(416, {**said.headers, **answer.headers}, said.body)
        headers = {"content-type": "application/octet-stream", "x-ms-blob-type": "BlockBlob"}
        return Response(answer.status, {**headers, **_about(found), **answer.headers}, answer.body)

    def _put(self, request: Request, objects: Objects, key: str) -> Response:
        if refused := self._refused(request, objects.get(key)):
            return refused
        if (source := request.headers.get("x-ms-copy-source")) is not None:
            original = objects.get(unquote(urlsplit(source).path).lstrip("/").partition("/")[2])
            if original is None:
                return self._not_found()
            about = _about(objects.put(key, original.data))
            return Response(202, {**about, "x-ms-copy-status": "success", "x-ms-copy-id": "0"})
        if request.headers.get("x-ms-blob-type") != "BlockBlob":
            return self.error(400, "MissingRequiredHeader", "x-ms-blob-type is missing or not BlockBlob")
        objects.uploads.pop(key, None)  # blocks that were not committed are lost, as documented
        return Response(201, {**_about(objects.put(key, request.body)), **_checksum(request)})

    def _put_block(self, request: Request, objects: Objects, key: str) -> Response:
        name = request.query["blockid"]
        upload = objects.uploads.setdefault(key, Upload(key))
        if any(len(other) != len(name) for other in upload.parts):
            return self.error(400, "InvalidBlobOrBlock", "The specified blob or block content is invalid.")
        upload.parts[name] = request.body
        return Response(201, _checksum(request))

    def _put_block_list(self, request: Request, objects: Objects, key: str) -> Response:
        blocks = [child.text or "" for child in ElementTree.fromstring(request.body)]
        parts = objects.uploads.get(key, Upload(key)).parts
        if any(block not in parts for block in blocks):
            return self.error(400, "InvalidBlockList", "The specified block list is invalid.")
        if refused := self._refused(request, objects.get(key)):
            return refused
        made = objects.put(key, b"".join(parts[block] for block in blocks))
        objects.uploads.pop(key, None)
        return Response(201, {**_about(made), **_checksum(request)})

    def _delete(self, request: Request, objects: Objects, key: str) -> Response:
        found = objects.get(key)
        if found is None:
            return self._not_found()
        if failed_condition(request, found):
            return self._unmet()
        objects.delete(key)
        return Response(202)

    def _batch(self, request: Request, objects: Objects) -> Response:
        """Deletes several blobs: each part of the body is a request of its own, and so is each part of the answer."""
        boundary = request.headers["content-type"].partition("boundary=")[2].strip('"')
        parts: list[str] = []
        for part in request.body.decode().split(f"--{boundary}")[1:-1]:
            outer, _, inner = part.lstrip("\r\n").partition("\r\n\r\n")
            line, *lines = inner.rstrip("\r\n").split("\r\n")
            method, target, _ = line.split(" ")
            answer = self.answer(_inner_request(method, target, lines), objects)
            number = next(value for name, value in map(_header, outer.split("\r\n")) if name == "content-id")
            head = answer.head().decode()
            body = bytes(answer.body).decode()
            parts.append(f"--answers\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n{head}{body}\r\n")
        headers = {"content-type": "multipart/mixed; boundary=answers"}
        return Response(202, headers, ("".join(parts) + "--answers--\r\n").encode())

    def _list(self, query: Mapping[str, str], objects: Objects) -> Response:
        limit = min(int(query.get("maxresults", self.page)), self.page)
        marker = query.get("marker")
        page = objects.page(
            query.get("prefix", ""),
            query.get("delimiter", ""),
            base64.urlsafe_b64decode(marker).decode() if marker else None,
            limit,
            first=query.get("startFrom", ""),
        )
        blobs = [f"<BlobPrefix>{element('Name', prefix)}</BlobPrefix>" for prefix in page.prefixes]
        for key, found in page.objects.items():
            about = [element("Last-Modified", http_date(found.modified)), element("Etag", found.etag.strip('"'))]
            about.append(element("Content-Length", len(found.data)))
            about += [element("Content-Type", "application/octet-stream"), element("BlobType", "BlockBlob")]
            blobs.append(f"<Blob>{element('Name', key)}<Properties>{''.join(about)}</Properties></Blob>")
        following = base64.urlsafe_b64encode(page.next_marker.encode()).decode() if page.next_marker else ""
        said = [element("MaxResults", limit), f"<Blobs>{''.join(blobs)}</Blobs>", element("NextMarker", following)]
        return Response(200, _XML, xml(f'EnumerationResults ContainerName="{BUCKET}"', *said))

    def _refused(self, request: Request, found: Object | None) -> Response | None:
        """An answer to a write whose condition does not hold."""
        if not failed_condition(request, found):
            return None
        if request.headers.get("if-none-match") == "*":
            return self.error(409, "BlobAlreadyExists", "The specified blob already exists.")
        return self._unmet()

    def _unmet(self) -> Response:
        return self.error(
            412, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met."
        )

    def _not_found(self) -> Response:
        return self.error(404, "BlobNotFound", "The specified blob does not exist.")


def _about(found: Object) -> dict[str, str]:
    return {"etag": found.etag, "last-modified": http_date(found.modified)}


def _checksum(request: Request) -> dict[str, str]:
    """The checksum of the request's body: the kind that the client has sent, or CRC64 if it has sent none."""
    if "content-md5" in request.headers:
        return {"content-md5": md5(request.body)}
    return {"x-ms-content-crc64": azure_crc64(request.body)}


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


def _inner_request(method: str, target: str, lines: list[str]) -> Request:
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Request(method, target, unquote(parts.path), query, dict(map(_header, lines)))


def is_signed(request: Request) -> bool:
    """Whether the request has the right signature of the account."""
    return request.headers.get("authorization") == authorization(request)


def authorization(request: Request) -> str:
    """What the header Authorization has to be ("Authorize with Shared Key")."""
    headers = request.headers
    length = headers.get("content-length", "")
    standard = {**headers, "content-length": "" if length == "0" else length}
    lines = [request.method, *(standard.get(name, "") for name in _SIGNED)]
    lines += [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-")]
    lines.append(f"/{ACCOUNT}{urlsplit(request.target).path}")
    lines += [f"{name.lower()}:{value}" for name, value in sorted(request.query.items())]
    digest = hmac.digest(base64.b64decode(KEY), "\n".join(lines).encode(), hashlib.sha256)
    return f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
