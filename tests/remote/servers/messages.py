"""HTTP requests and answers of our own servers: ranges and conditions as RFC 9110 has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import format_datetime, parsedate_to_datetime
from http import HTTPStatus

from .objects import Object


@dataclass(frozen=True)
class Request:
    """One request. Header names are in lower case; path and query are decoded."""

    method: str
    target: str
    """Path and query as they were sent."""
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    def without(self, *names: str) -> Request:
        """The same request without some of its headers."""
        return replace(self, headers={name: value for name, value in self.headers.items() if name not in names})


@dataclass(frozen=True)
class Response:
    """One answer. The length of the body is sent as Content-Length unless the headers have another one."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""

    def with_headers(self, **changed: str | None) -> Response:
        """The same answer with other headers (`content_range="..."`); None drops one."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        for name, value in changed.items():
            headers.pop(name.replace("_", "-"), None)
            if value is not None:
                headers[name.replace("_", "-")] = value
        return replace(self, headers=headers)

    def head(self, *, chunked: bool = False) -> bytes:
        """Everything before the body."""
        headers = dict(self.headers)
        if chunked:
            headers["transfer-encoding"] = "chunked"
        elif self.status not in (204, 304):
            headers.setdefault("content-length", str(len(self.body)))
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def http_date(when: datetime) -> str:
    return format_datetime(when, usegmt=True)


def failed_condition(request: Request, found: Object | None) -> int | None:
    """412 or 304 if a condition of the request does not hold for the object that is there, in the order of RFC 9110."""
    headers = request.headers
    reading = request.method in ("GET", "HEAD")
    if (wanted := headers.get("if-match")) is not None:
        if found is None or not _lists(wanted, found.etag):
            return 412
    elif found and (since := headers.get("if-unmodified-since")) and found.modified > parsedate_to_datetime(since):
        return 412
    if (unwanted := headers.get("if-none-match")) is not None:
        if found is not None and _lists(unwanted, found.etag):
            return 304 if reading else 412
    elif found and reading and (since := headers.get("if-modified-since")):
        return 304 if found.modified <= parsedate_to_datetime(since) else None
    return None


def _lists(header: str, etag: str) -> bool:
    return header.strip() == "*" or etag in [listed.strip() for listed in header.split(",")]


_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")


def ranged(request: Request, found: Object, header: str | None) -> Response:
    """The object, or the range of it that the header names: 200, 206 or 416. Several ranges at once are ignored."""
    size = len(found.data)
    matched = _RANGE.match(header or "")
    if_range = request.headers.get("if-range", found.etag)
    if matched is None or matched.group() == "bytes=-" or if_range != found.etag:
        return Response(200, {"accept-ranges": "bytes"}, memoryview(found.data))
    first, last = matched.groups()
    start = int(first) if first else max(size - int(last), 0)
    stop = min(int(last) + 1, size) if first and last else size
    if first and last and int(last) < int(first):  # not a range at all
        return Response(200, {"accept-ranges": "bytes"}, memoryview(found.data))
    if start >= stop:
        return Response(416, {"content-range": f"bytes */{size}"})
    headers = {"accept-ranges": "bytes", "content-range": f"bytes {start}-{stop - 1}/{size}"}
    return Response(206, headers, memoryview(found.data)[start:stop])
