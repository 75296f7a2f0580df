"""Google Cloud Storage's XML API, as far as the object_store crate uses it. Our own: it follows the documentation."""

from __future__ import annotations

import json
from functools import lru_cache

from .checksums import google_crc32c, md5
from .messages import Request, Response, failed_condition
from .objects import Object, Objects
from .s3 import S3

_CONDITIONS = ("if-match", "if-none-match", "x-goog-if-generation-match", "x-goog-if-generation-not-match")


class Gcs(S3):
    """Like S3, with generations. Objects have no old versions: any generation but the current one is missing."""

    scheme = "gs"
    copy_header = "x-goog-copy-source"

    def storage(self, endpoint: str) -> dict[str, str]:
        # An account whose tokens need no other server; it names the server of the objects as well.
        account = {
            "private_key": "test-private-key",
            "private_key_id": "test-private-key-id",
            "client_email": "test@example.com",
            "disable_oauth": True,
            "gcs_base_url": endpoint,
        }
        return {"google_service_account_key": json.dumps(account), "allow_http": "true"}

    def headers(self, found: Object) -> dict[str, str]:
        return {
            **super().headers(found),
            "x-goog-generation": str(found.generation),
            "x-goog-metageneration": "1",
            "x-goog-stored-content-length": str(len(found.data)),
            "x-goog-hash": _hashes(found.data, is_composed=found.etag.startswith('"composed-')),
        }

    def part_headers(self, data: bytes) -> dict[str, str]:
        return {**super().part_headers(data), "x-goog-hash": _hashes(data)}

    def complete(self, request: Request, objects: Objects, key: str, parts: list[bytes]) -> Object | Response:
        if any(name in request.headers for name in _CONDITIONS):
            return self.error(501, "NotImplemented", "Uploads in parts have no preconditions.")
        return objects.put(key, b"".join(parts), f'"composed-{objects.next_generation()}"')

    def failed(self, request: Request, found: Object | None) -> int | None:
        wanted = request.headers.get("x-goog-if-generation-match")
        if wanted is not None and int(wanted) != (found.generation if found else 0):
            return 412
        unwanted = request.headers.get("x-goog-if-generation-not-match")
        if unwanted is not None and int(unwanted) == (found.generation if found else 0):
            return 304 if request.method in ("GET", "HEAD") else 412
        return failed_condition(request, found)

    def missing(self, request: Request, found: Object | None) -> bool:
        wanted = request.query.get("generation")
        return found is None or (wanted is not None and int(wanted) != found.generation)

    def delete(self, request: Request, objects: Objects, key: str) -> Response:
        found = objects.get(key)
        if self.missing(request, found):
            return self.no_such_key()
        if status := self.failed(request, found):
            return self.unmet(status)
        objects.delete(key)
        return Response(204)


@lru_cache(64)
def _hashes(data: bytes, *, is_composed: bool = False) -> str:
    """An object that was stored in parts has no MD5."""
    crc = f"crc32c={google_crc32c(data)}"
    return crc if is_composed else f"{crc},md5={md5(data)}"
