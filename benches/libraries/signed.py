"""URLs of objects in an S3 server that need no keys, for clients that know only HTTP (AWS Signature Version 4)."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from benches.libraries.job import ACCESS_KEY, BUCKET, REGION, SECRET_KEY

VALID_SECONDS = 24 * 3600


def signed_url(endpoint: str, key: str) -> str:
    """The URL of an object. Anybody can read it for a day."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    parts = (now[:8], REGION, "s3", "aws4_request")
    scope = "/".join(parts)
    path = f"/{BUCKET}/{quote(key)}"
    values = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{ACCESS_KEY}/{scope}",
        "X-Amz-Date": now,
        "X-Amz-Expires": str(VALID_SECONDS),
        "X-Amz-SignedHeaders": "host",
    }
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in values.items())
    request = "\n".join(["GET", path, query, f"host:{urlsplit(endpoint).netloc}\n", "host", "UNSIGNED-PAYLOAD"])
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
    secret = f"AWS4{SECRET_KEY}".encode()
    for part in parts:
        secret = hmac.digest(secret, part.encode(), "sha256")
    return f"{endpoint}{path}?{query}&X-Amz-Signature={hmac.digest(secret, text.encode(), 'sha256').hex()}"
