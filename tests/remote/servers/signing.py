"""Requests to S3 servers, signed with AWS Signature Version 4, without the code that is tested."""

from __future__ import annotations

import hashlib
import hmac
import http.client
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

from .server import ACCESS_KEY, SECRET_KEY

REGION = "us-east-1"
_SIGNED = "host;x-amz-content-sha256;x-amz-date"


def put(port: int, path: str, data: bytes) -> None:
    """Sends PUT to an S3 server on 127.0.0.1; `path` is encoded already."""
    assert ask(port, "PUT", path, data=data) is not None, f"the server has no bucket for {path}"


def ask(port: int, method: str, path: str, query: Mapping[str, str] | None = None, data: bytes = b"") -> bytes | None:
    """What the server answers. None if it has no such object."""
    encoded = urlencode(sorted((query or {}).items()))
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        headers = _headers(method, f"127.0.0.1:{port}", path, encoded, data)
        connection.request(method, f"{path}?{encoded}" if encoded else path, data, headers)
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status in (200, 404), f"the server refused {method} {path}: {answer.status} {said[:500]!r}"
        return said if answer.status == 200 else None
    finally:
        connection.close()


def _headers(method: str, host: str, path: str, query: str, data: bytes) -> dict[str, str]:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    day, digest = now[:8], hashlib.sha256(data).hexdigest()
    scope = f"{day}/{REGION}/s3/aws4_request"
    signed = f"host:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{now}\n"
    canonical = "\n".join([method, path, query, signed, _SIGNED, digest])
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{SECRET_KEY}".encode()
    for part in (day, REGION, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={_SIGNED}, Signature={signature}"
    return {"Host": host, "x-amz-content-sha256": digest, "x-amz-date": now, "Authorization": credential}
