"""Plain HTTP: GET and HEAD with ranges and conditions. No listing, no writing."""

from __future__ import annotations

from .messages import Request, Response, failed_condition, http_date, ranged
from .objects import Objects
from .protocol import Protocol
from .server import quoted


class Web(Protocol):
    """Keys are paths below the root."""

    scheme = "http"

    def url(self, endpoint: str, key: str) -> str:
        return f"{endpoint}/{quoted(key)}"

    def storage(self, endpoint: str) -> dict[str, str]:
        return {}

    def key(self, request: Request) -> str:
        return request.path.lstrip("/")

    def error(self, status: int, code: str, message: str) -> Response:
        return Response(status, {"content-type": "text/plain"}, f"{code}: {message}\n".encode())

    def answer(self, request: Request, objects: Objects) -> Response:
        if request.method not in ("GET", "HEAD"):
            return self.error(405, "MethodNotAllowed", f"{request.method} is not allowed").with_headers(
                allow="GET, HEAD"
            )
        found = objects.get(self.key(request))
        if found is None:
            return self.error(404, "NotFound", f"there is no {request.path}")
        about = {"etag": found.etag, "last-modified": http_date(found.modified)}
        if status := failed_condition(request, found):
            return Response(status, about)
        answer = ranged(request, found, request.headers.get("range"))
        return Response(answer.status, {**about, **answer.headers}, answer.body)
