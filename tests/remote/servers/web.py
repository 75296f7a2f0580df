"""Plain HTTP: GET and HEAD with ranges and conditions, PUT and DELETE. No listing."""

from __future__ import annotations

from .messages import Request, Response, failed_condition, http_date, ranged
from .objects import Object, Objects
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
        key = self.key(request)
        found = objects.get(key)
        if request.method not in ("GET", "HEAD", "PUT", "DELETE"):
            return self.error(405, "MethodNotAllowed", f"{request.method} is not allowed").with_headers(
                allow="GET, HEAD, PUT, DELETE"
            )
        if found is None and request.method != "PUT":
            return self.error(404, "NotFound", f"there is no {request.path}")
        if status := failed_condition(request, found):
            return Response(status, _about(found) if found else {})
        if request.method == "PUT":
            return Response(204 if found else 201, _about(objects.put(key, request.body)))
        assert found
        if request.method == "DELETE":
            objects.delete(key)
            return Response(204)
        answer = ranged(request, found, request.headers.get("range"))
        return Response(answer.status, {**_about(found), **answer.headers}, answer.body)


def _about(found: Object) -> dict[str, str]:
    return {"etag": found.etag, "last-modified": http_date(found.modified)}
