"""Every fault that our own server plays reaches a client."""

from __future__ import annotations

import http.client
import socket
import time
import urllib.request
from collections.abc import Callable

import obstore
import pytest
from obstore.exceptions import PreconditionError

from .clients import LIMIT_SECONDS, Client, ask, obstore_of
from .servers import Played, faults
from .servers.faults import Fault
from .servers.messages import Request

DATA = bytes(range(256)) * 400
PATH = "/bucket/a"


def playing(fault: Fault, **when: object) -> Played:
    """A server that plays a fault; what else is needed is the one object `a`."""
    server = Played({"a": DATA})
    server.play(fault, **when)  # type: ignore[arg-type]  # whatever the test wants
    return server


def test_without_faults_everything_is_right() -> None:
    with Played({"a": DATA}) as server, Client(server) as client:
        for _ in range(3):
            assert client.ask(PATH).body == DATA
        answer = client.ask(PATH, range="bytes=10-19")
        assert (answer.status, answer.body) == (206, DATA[10:20])
        assert answer.headers["content-range"] == f"bytes 10-19/{len(DATA)}"
        assert client.ask(PATH, "HEAD").headers["content-length"] == str(len(DATA))


def test_a_reset_before_the_answer() -> None:
    with playing(faults.reset()) as server, pytest.raises(ConnectionResetError):
        ask(server, PATH)


def test_a_reset_within_the_body() -> None:
    with playing(faults.reset(after=1000)) as server, Client(server) as client:
        client.send(PATH)
        answer = client.connection.getresponse()
        assert answer.status == 200
        assert answer.headers["Content-Length"] == str(len(DATA))
        assert answer.read(1000) == DATA[:1000]
        with pytest.raises(ConnectionResetError):
            answer.read(1)
        assert server.log[0].bytes == 1000


def test_a_close_before_the_answer() -> None:
    with playing(faults.close()) as server, pytest.raises(http.client.RemoteDisconnected):
        ask(server, PATH)


@pytest.mark.parametrize(
    ("after", "sent"),
    [(0, 0), (1000, 1000), (0.5, len(DATA) // 2), (len(DATA) - 1, len(DATA) - 1), (10 * len(DATA), len(DATA) - 1)],
)
def test_a_truncated_body(after: float, sent: int) -> None:
    with playing(faults.truncate(after=after)) as server, Client(server) as client:
        client.send(PATH)
        answer = client.connection.getresponse()
        assert answer.headers["Content-Length"] == str(len(DATA))
        with pytest.raises(http.client.IncompleteRead) as raised:
            answer.read()
        assert raised.value.partial == DATA[:sent]


@pytest.mark.parametrize("after", [None, 0, 5000])
def test_a_stall(after: int | None) -> None:
    """What is not there when a later request is answered never comes."""
    with playing(faults.stall(after=after), number=1) as server, Client(server) as client:
        client.send(PATH)
        if after is not None:
            answer = client.connection.getresponse()
            assert answer.status == 200
            assert answer.read(after) == DATA[:after]
        assert ask_when_logged(server, 1) == DATA
        stalled = client.connection.sock
        stalled.setblocking(False)
        with pytest.raises(BlockingIOError):
            stalled.recv(1, socket.MSG_PEEK)
        assert server.log[0].fault == "stall"


def ask_when_logged(server: Played, count: int) -> bytes:
    """Asks on another connection, once so many requests have arrived."""
    while server.requests < count:
        time.sleep(0.001)
    return ask(server, PATH).body


def test_a_server_ends_while_a_request_is_stalled() -> None:
    server = playing(faults.stall())
    with server, Client(server) as client:
        client.send(PATH)
        while not server.requests:
            time.sleep(0.001)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_SECONDS)


def test_a_slow_body() -> None:
    with playing(faults.slow(bytes_per_second=len(DATA) / 0.25)) as server:
        start = time.monotonic()
        assert ask(server, PATH).body == DATA
        assert time.monotonic() - start >= 0.2


ERRORS: list[tuple[Callable[[], Fault], int, str, dict[str, str]]] = [
    (faults.internal_error, 500, "InternalError", {}),
    (faults.slow_down, 503, "SlowDown", {}),
    (lambda: faults.slow_down(retry_after=2), 503, "SlowDown", {"retry-after": "2"}),
    (faults.too_many_requests, 429, "TooManyRequests", {}),
    (lambda: faults.too_many_requests(retry_after=0.5), 429, "TooManyRequests", {"retry-after": "0.5"}),
    (faults.unauthorized, 401, "Unauthorized", {"www-authenticate": "Bearer"}),
    (faults.access_denied, 403, "AccessDenied", {}),
    (faults.not_found, 404, "NoSuchKey", {}),
    (lambda: faults.not_found("NoSuchBucket"), 404, "NoSuchBucket", {}),
    (faults.wrong_region, 301, "PermanentRedirect", {"x-amz-bucket-region": "eu-central-1"}),
    (faults.malformed_authorization, 400, "AuthorizationHeaderMalformed", {"x-amz-bucket-region": "eu-central-1"}),
    (lambda: faults.error(502, "BadGateway"), 502, "BadGateway", {}),
]


@pytest.mark.parametrize(("fault", "status", "code", "headers"), ERRORS)
def test_errors(fault: Callable[[], Fault], status: int, code: str, headers: dict[str, str]) -> None:
    with playing(fault()) as server, Client(server) as client:
        answer = client.ask(PATH)
        assert answer.status == status
        assert f"<Code>{code}</Code>".encode() in answer.body
        assert {name: answer.headers.get(name) for name in headers} == headers
        assert ("retry-after" in answer.headers) == ("retry-after" in headers)
        head = client.ask(PATH, "HEAD")  # on the same connection: no body was left behind
        assert (head.status, head.body) == (status, b"")


@pytest.mark.parametrize(("protocol", "said"), [("azure", b"<Code>SlowDown</Code>"), ("http", b"SlowDown: ")])
def test_errors_are_said_in_the_words_of_the_protocol(protocol: str, said: bytes) -> None:
    with Played({"a": DATA}, protocol=protocol) as server:  # type: ignore[arg-type]  # one of the four
        server.play(faults.slow_down())
        assert said in ask(server, PATH).body


def test_a_range_that_is_ignored() -> None:
    with playing(faults.ignore_range()) as server:
        answer = ask(server, PATH, range="bytes=10-19")
        assert (answer.status, answer.body) == (200, DATA)
        assert "content-range" not in answer.headers


def test_an_answer_without_a_length() -> None:
    with playing(faults.no_length()) as server, Client(server) as client:
        answer = client.ask(PATH, range="bytes=10-19")
        assert (answer.status, answer.body) == (206, DATA[10:20])
        assert "content-length" not in answer.headers
        assert answer.headers["transfer-encoding"] == "chunked"
        assert client.ask(PATH).body == DATA
        assert "content-length" not in client.ask(PATH, "HEAD").headers


def test_a_wrong_content_range() -> None:
    with playing(faults.wrong_content_range(shift=7)) as server:
        answer = ask(server, PATH, range="bytes=10-19")
        assert (answer.status, answer.body) == (206, DATA[10:20])
        assert answer.headers["content-range"] == f"bytes 17-26/{len(DATA)}"


def test_other_headers() -> None:
    with playing(faults.headers(etag=None, last_modified="never")) as server:
        answer = ask(server, PATH)
        assert "etag" not in answer.headers
        assert answer.headers["last-modified"] == "never"
        assert answer.body == DATA


def test_wrong_bytes() -> None:
    with playing(faults.garbage()) as server:
        body = ask(server, PATH, range="bytes=10-1009").body
        assert len(body) == 1000
        assert all(found != right for found, right in zip(body, DATA[10:1010], strict=True))


def test_an_object_that_is_replaced_between_two_requests() -> None:
    other = DATA[::-1]
    with playing(faults.replaced(other), number=3) as server, Client(server) as client:
        first = client.ask(PATH)
        same = client.ask(PATH, if_match=first.headers["etag"], range="bytes=0-9")
        assert (same.status, same.body) == (206, DATA[:10])
        changed = client.ask(PATH, if_match=first.headers["etag"], range="bytes=0-9")
        assert changed.status == 412
        new = client.ask(PATH)
        assert new.body == other
        assert new.headers["etag"] != first.headers["etag"]
        assert client.ask(PATH, if_match=first.headers["etag"]).status == 412


def test_obstore_sees_that_an_object_was_replaced() -> None:
    with playing(faults.replaced(b"other"), number=2) as server:
        store = obstore_of(server)
        etag = obstore.head(store, "a")["e_tag"]
        with pytest.raises(PreconditionError):
            obstore.get(store, "a", options={"if_match": etag})


def test_conditions_that_are_ignored() -> None:
    with playing(faults.ignore_conditions()) as server:
        assert ask(server, PATH, if_match='"other"').body == DATA


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize(("to", "host"), [("same", "127.0.0.1"), ("other", "localhost")])
def test_redirects(to: str, host: str, status: int) -> None:
    with playing(faults.redirect(to, status), number=1) as server:
        url = f"{server.endpoint}{PATH}?x=1"
        with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:
            assert answer.read() == DATA
            assert answer.url == url.replace("127.0.0.1", host)
        assert [entry.headers["host"] for entry in server.log] == [f"127.0.0.1:{server.port}", f"{host}:{server.port}"]


def test_a_redirect_to_another_url() -> None:
    with playing(faults.redirect("https://example.com/a")) as server:
        assert ask(server, PATH).headers["location"] == "https://example.com/a"


def test_a_fault_by_number() -> None:
    with playing(faults.internal_error(), number={2, 4}) as server, Client(server) as client:
        assert [client.ask(PATH).status for _ in range(5)] == [200, 500, 200, 500, 200]


def test_a_fault_from_one_request_on() -> None:
    with playing(faults.internal_error(), number=range(3, 1000)) as server, Client(server) as client:
        assert [client.ask(PATH).status for _ in range(5)] == [200, 200, 500, 500, 500]


def test_a_fault_by_path() -> None:
    with Played({"one/a": b"", "one/b": b"", "two/a": b""}) as server, Client(server) as client:
        server.play(faults.access_denied(), path="one/*")
        assert [client.ask(f"/bucket/{key}").status for key in ("one/a", "one/b", "two/a")] == [403, 403, 200]


def test_a_fault_by_method_and_so_many_times() -> None:
    with playing(faults.internal_error(), method="GET", times=2) as server, Client(server) as client:
        assert [client.ask(PATH, method).status for method in ("HEAD", "GET", "HEAD", "GET", "GET")] == [
            *(200, 500, 200, 500, 200)
        ]


def test_a_fault_by_what_the_request_asks_for() -> None:
    def suffix(request: Request) -> bool:
        return request.headers.get("range", "").startswith("bytes=-")

    with playing(faults.internal_error(), when=suffix) as server, Client(server) as client:
        assert [client.ask(PATH, range=wanted).status for wanted in ("bytes=0-1", "bytes=-5", "bytes=5-")] == [
            *(206, 500, 206)
        ]


def test_faults_by_chance_depend_on_the_seed_alone() -> None:
    def failed(seed: int) -> list[int]:
        with playing(faults.internal_error(), chance=0.3, seed=seed) as server, Client(server) as client:
            return [number for number in range(200) if client.ask(PATH, "HEAD").status == 500]

    assert failed(1) == failed(1)
    assert failed(1) != failed(2)
    assert 30 < len(failed(1)) < 90


def test_the_first_rule_that_holds_is_played() -> None:
    with Played({"a": DATA}) as server, Client(server) as client:
        first = server.play(faults.slow_down(), number=2)
        second = server.play(faults.internal_error())
        assert [client.ask(PATH).status for _ in range(3)] == [500, 503, 500]
        assert (first.played, second.played) == (1, 2)


@pytest.mark.parametrize("protocol", ["gcs", "azure"])
def test_faults_are_played_by_the_other_protocols(protocol: str) -> None:
    with Played({"a": DATA}, protocol=protocol) as server:  # type: ignore[arg-type]  # one of the four
        server.play(faults.replaced(b"other"), number=2)
        store = obstore_of(server)
        etag = obstore.head(store, "a")["e_tag"]
        with pytest.raises(PreconditionError):
            obstore.get(store, "a", options={"if_match": etag})
        assert bytes(obstore.get(store, "a").bytes()) == b"other"
