"""The faults that our own server plays, and the script that says when."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal

from .messages import Request, Response
from .objects import Objects
from .operations import Operation, operation
from .protocol import Protocol

RANGES = ("range", "x-ms-range")
CONDITIONS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range")


@dataclass(frozen=True)
class Exchange:
    """A request with the right answer to it, for a fault to change."""

    request: Request
    protocol: Protocol
    objects: Objects
    port: int

    @cached_property
    def right(self) -> Response:
        """The right answer. A request is carried out when a fault asks for this: an error does not."""
        return self.again()

    def again(self, request: Request | None = None) -> Response:
        """The answer to another request, or to the same one now that the objects have changed."""
        return self.protocol.answer(request or self.request, self.objects)


@dataclass(frozen=True)
class Cut:
    """An answer or a request that stops within its body. None: before the first byte of the answer."""

    after: float | None
    """Bytes of the body, or below 1 a share of it."""
    how: Literal["reset", "close", "stall"]

    def bytes_of(self, size: int) -> int:
        """How many bytes of a body are sent: never all of them."""
        wanted = self.after or 0
        return max(0, min(int(wanted * size if wanted < 1 else wanted), size - 1))


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request or its answer."""

    name: str
    change: Callable[[Exchange], Response] | None = None
    """Makes another answer. Without it, the request is carried out."""
    request_cut: Cut | None = None
    """Where the server stops to read the request. Then it is not carried out."""
    late_seconds: float = 0.0
    """How long the answer is held back."""
    cut: Cut | None = None
    bytes_per_second: float | None = None
    chunked: bool = False


# The connection.


def reset_in_request(after: float = 0) -> Fault:
    """The connection is reset before or within the body of the request, after some bytes or a share of it."""
    return Fault("reset in the request", request_cut=Cut(after, "reset"))


def stall_in_request(after: float = 0) -> Fault:
    """The server reads nothing more of the body of the request; the connection stays open."""
    return Fault("stall in the request", request_cut=Cut(after, "stall"))


def late(seconds: float) -> Fault:
    """The answer comes after this time."""
    return Fault("late", late_seconds=seconds)


def reset(after: float | None = None) -> Fault:
    """The connection is reset before the answer, or within its body after some bytes or a share of it.

    The request was carried out: a client that wrote something does not know it.
    """
    return Fault("reset", cut=Cut(after, "reset"))


def close() -> Fault:
    """The connection is closed in good order before the answer."""
    return Fault("close", cut=Cut(None, "close"))


def truncate(after: float) -> Fault:
    """Content-Length promises the whole body, but the connection is closed after some bytes or a share of it."""
    return Fault("truncate", cut=Cut(after, "close"))


def stall(after: float | None = None) -> Fault:
    """Nothing more comes, before the answer or within its body; the connection stays open."""
    return Fault("stall", cut=Cut(after, "stall"))


def slow(bytes_per_second: float) -> Fault:
    """The body comes at this rate."""
    return Fault("slow", bytes_per_second=bytes_per_second)


# Errors.


def error(
    status: int, code: str = "", message: str = "played by the test", *, headers: dict[str, str] | None = None
) -> Fault:
    """An error as the protocol reports it; `headers` come on top."""

    def change(exchange: Exchange) -> Response:
        said = exchange.protocol.error(status, code or f"Error{status}", message)
        return Response(said.status, {**said.headers, **(headers or {})}, said.body)

    return Fault(f"error {status} {code}".strip(), change)


def internal_error() -> Fault:
    """500, as S3 says it."""
    return error(500, "InternalError", "We encountered an internal error. Please try again.")


def slow_down(*, retry_after: float | None = None) -> Fault:
    """503 SlowDown, as S3 says it."""
    return error(503, "SlowDown", "Please reduce your request rate.", headers=_retry_after(retry_after))


def too_many_requests(*, retry_after: float | None = None) -> Fault:
    """429, as Google Cloud Storage and proxies say it."""
    return error(429, "TooManyRequests", "Too many requests.", headers=_retry_after(retry_after))


def wrong_region(region: str = "eu-central-1") -> Fault:
    """301 PermanentRedirect without a Location: the bucket is in another region."""
    message = "The bucket you are attempting to access must be addressed using the specified endpoint."
    return error(301, "PermanentRedirect", message, headers={"x-amz-bucket-region": region})


def malformed_authorization(region: str = "eu-central-1") -> Fault:
    """400 AuthorizationHeaderMalformed: the request is signed for another region."""
    message = f"The authorization header is malformed; the region 'us-east-1' is wrong; expecting '{region}'"
    return error(400, "AuthorizationHeaderMalformed", message, headers={"x-amz-bucket-region": region})


def access_denied() -> Fault:
    """403."""
    return error(403, "AccessDenied", "Access Denied")


def unauthorized() -> Fault:
    """401."""
    return error(401, "Unauthorized", "Authentication is required", headers={"www-authenticate": "Bearer"})


def not_found(code: str = "NoSuchKey") -> Fault:
    """404, for an object or (`NoSuchBucket`) for the bucket."""
    return error(404, code, "It does not exist")


def no_such_upload() -> Fault:
    """404: this upload was completed or aborted. Later requests of it get the same answer."""

    def change(exchange: Exchange) -> Response:
        named = exchange.request.query.get("uploadId", exchange.protocol.key(exchange.request))
        exchange.objects.uploads.pop(named, None)
        return exchange.right

    return Fault("no such upload", change)


def error_in_body(code: str = "InternalError") -> Fault:
    """200, and the body says that it failed: S3 may begin its answer before it has completed an upload."""

    def change(exchange: Exchange) -> Response:
        return replace(exchange.protocol.error(500, code, "We encountered an internal error."), status=200)

    return Fault(f"200 {code}", change)


def carried_out(fault: Fault) -> Fault:
    """The same error, but what was asked for has been done."""
    assert fault.change
    change = fault.change

    def done(exchange: Exchange) -> Response:
        assert exchange.right
        return change(exchange)

    return replace(fault, name=f"{fault.name}, carried out", change=done)


def damaged(at: float = 0.5) -> Fault:
    """One bit of the body of a request changes on its way. The server stores it so, unless a checksum tells."""

    def change(exchange: Exchange) -> Response:
        body = bytearray(exchange.request.body)
        if body:
            body[int(at * len(body))] ^= 1
        return exchange.again(replace(exchange.request, body=bytes(body)))

    return Fault("damaged", change)


def _retry_after(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {"retry-after": f"{seconds:g}"}


# Answers that are not what was asked for.


def redirect(to: str, status: int = 307) -> Fault:
    """To another URL. `same` is this server, `other` is this server by another host name; both keep path and query."""

    def change(exchange: Exchange) -> Response:
        target = exchange.request.target
        hosts = {
            "same": f"http://127.0.0.1:{exchange.port}{target}",
            "other": f"http://localhost:{exchange.port}{target}",
        }
        return Response(status, {"location": hosts.get(to, to)})

    return Fault("redirect", change)


def ignore_range() -> Fault:
    """200 with the whole object, whatever range was asked for."""
    return Fault("ignore range", lambda exchange: exchange.again(exchange.request.without(*RANGES, "if-range")))


def ignore_conditions() -> Fault:
    """If-Match and its like are not heeded."""
    return Fault("ignore conditions", lambda exchange: exchange.again(exchange.request.without(*CONDITIONS)))


def no_length() -> Fault:
    """No Content-Length: the body comes in chunks."""
    return Fault("no length", chunked=True)


def wrong_content_range(shift: int = 1) -> Fault:
    """The Content-Range names bytes that lie this far behind those that come."""

    def change(exchange: Exchange) -> Response:
        named = exchange.right.headers.get("content-range")
        if exchange.right.status != 206 or named is None:
            return exchange.right
        first, last = named.removeprefix("bytes ").partition("/")[0].split("-")
        size = named.partition("/")[2]
        return exchange.right.with_headers(content_range=f"bytes {int(first) + shift}-{int(last) + shift}/{size}")

    return Fault("wrong Content-Range", change)


def headers(**changed: str | None) -> Fault:
    """Other headers than the right ones: `headers(etag=None)` drops one, `headers(etag='W/"1"')` sets one."""
    return Fault("headers", lambda exchange: exchange.right.with_headers(**changed))


def garbage() -> Fault:
    """The right number of bytes, and each of them wrong."""

    def change(exchange: Exchange) -> Response:
        wrong = bytes(byte ^ 0xA5 for byte in exchange.right.body)
        return Response(exchange.right.status, exchange.right.headers, wrong)

    return Fault("garbage", change)


def replaced(data: bytes, key: str | None = None) -> Fault:
    """From this request on the object has other data and another ETag. Conditions are heeded: If-Match gets 412."""

    def change(exchange: Exchange) -> Response:
        exchange.objects.put(exchange.protocol.key(exchange.request) if key is None else key, data)
        return exchange.again()

    return Fault("replaced", change)


@dataclass
class Rule:
    """When a fault is played: for every request that all conditions hold for."""

    fault: Fault
    number: int | Collection[int] | None = None
    """Requests by their number in the log; the first is 1."""
    path: str | None = None
    """Objects by key, with `*` and `?`."""
    method: str | None = None
    operation: Operation | None = None
    times: int | None = None
    """How often it is played at most."""
    chance: float | None = None
    """How likely it is played. The seed and the number of a request decide it, not what came before."""
    seed: int = 0
    when: Callable[[Request], bool] | None = None
    """What the request is like. Its body has not been read yet."""
    played: int = field(default=0, init=False)

    def holds(self, number: int, key: str, request: Request) -> bool:
        if self.times is not None and self.played >= self.times:
            return False
        if isinstance(self.number, int) and number != self.number:
            return False
        if self.number is not None and not isinstance(self.number, int) and number not in self.number:
            return False
        if self.path is not None and not fnmatchcase(key, self.path):
            return False
        if self.method is not None and request.method != self.method:
            return False
        if self.operation is not None and operation(request, key) != self.operation:
            return False
        if self.when is not None and not self.when(request):
            return False
        return self.chance is None or random.Random(f"{self.seed} {number}").random() < self.chance


class Script:
    """The rules in their order. The first that holds is played."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def choose(self, number: int, key: str, request: Request) -> Fault | None:
        for rule in self.rules:
            if rule.holds(number, key, request):
                rule.played += 1
                return rule.fault
        return None
