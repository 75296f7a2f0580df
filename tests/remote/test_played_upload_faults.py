"""Every fault that our own server plays with uploads reaches a client, and says whether the request was carried out."""

from __future__ import annotations

import base64
import hashlib
import random
import socket
import time
from typing import Any

import pytest

from .clients import LIMIT_SECONDS, Answer, Client, ask
from .servers import Played, faults
from .servers.faults import Fault

DATA = random.Random(3).randbytes(8 << 20)
"""More than the sockets hold, so that a client notices when nobody reads it."""
SHA256 = base64.b64encode(hashlib.sha256(DATA).digest()).decode()
PATH = "/bucket/a"


def playing(fault: Fault, **when: Any) -> Played:
    server = Played({"old": b"old"})
    server.play(fault, **when)
    return server


@pytest.mark.parametrize("after", [0, 1000, 0.5])
def test_a_reset_in_the_request(after: float) -> None:
    with playing(faults.reset_in_request(after)) as server:
        with pytest.raises(ConnectionError):
            ask(server, PATH, "PUT", DATA)
        assert server.get("a") is None
        (entry,) = server.log
        assert (entry.operation, entry.status, entry.received, entry.fault) == (
            *("put", None, None, "reset in the request"),
        )


def test_a_stall_in_the_request() -> None:
    with playing(faults.stall_in_request(after=100), number=1) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_SECONDS) as client:
            client.sendall(f"PUT {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {4 * len(DATA)}\r\n\r\n".encode())
            client.setblocking(False)
            sent = 0
            while not server.requests:
                time.sleep(0.001)
            try:
                while True:
                    sent += client.send(DATA)
            except BlockingIOError:
                pass
            assert ask(server, "/bucket/old").body == b"old"
        assert sent < 4 * len(DATA)
        assert server.get("a") is None


def test_an_answer_that_is_lost() -> None:
    with playing(faults.reset()) as server:
        with pytest.raises(ConnectionResetError):
            ask(server, PATH, "PUT", DATA)
        assert server.get("a") == DATA
        assert server.log[0].received == len(DATA)


def test_a_late_answer() -> None:
    with playing(faults.late(0.2)) as server:
        before = time.monotonic()
        assert ask(server, PATH, "PUT", b"data").status == 200
        assert time.monotonic() - before >= 0.2


ERRORS = {
    "500": (faults.internal_error(), 500),
    "503": (faults.slow_down(), 503),
    "429": (faults.too_many_requests(), 429),
    "403": (faults.access_denied(), 403),
    "in the body": (faults.error_in_body(), 200),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("is_done", [False, True])
def test_errors_say_nothing_of_what_was_done(name: str, is_done: bool) -> None:
    fault, status = ERRORS[name]
    with playing(faults.carried_out(fault) if is_done else fault, number=1) as server, Client(server) as client:
        answer = client.ask(PATH, "PUT", DATA)
        assert answer.status == status
        assert b"<Error>" in answer.body
        assert (server.get("a") == DATA) == is_done
        assert client.ask(PATH, "PUT", b"again").status == 200


def test_data_that_is_damaged_on_its_way_has_another_etag() -> None:
    with playing(faults.damaged(), number=1) as server, Client(server) as client:
        answer = client.ask(PATH, "PUT", DATA)
        stored = server.get("a")
        assert stored is not None
        assert sum(one != other for one, other in zip(stored, DATA, strict=True)) == 1
        assert answer.headers["etag"] == f'"{hashlib.md5(stored).hexdigest()}"'
        assert client.ask(PATH, "PUT", DATA).headers["etag"] == f'"{hashlib.md5(DATA).hexdigest()}"'


def test_damage_is_noticed_where_a_checksum_is_sent() -> None:
    with playing(faults.damaged()) as server:
        answer = ask(server, PATH, "PUT", DATA, x_amz_checksum_sha256=SHA256)
        assert (answer.status, server.get("a")) == (400, None)


def begun(client: Client) -> str:
    body = client.ask(f"{PATH}?uploads", "POST").body.decode()
    return body.partition("<UploadId>")[2].partition("</UploadId>")[0]


def completed(client: Client, upload: str, *etags: str) -> Answer:
    listed = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>" for number, etag in enumerate(etags, 1)
    )
    body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    return client.ask(f"{PATH}?uploadId={upload}", "POST", body)


def test_an_upload_that_is_gone_stays_gone() -> None:
    with playing(faults.no_such_upload(), operation="part", times=1) as server, Client(server) as client:
        upload = begun(client)
        for number in (1, 2):
            answer = client.ask(f"{PATH}?uploadId={upload}&partNumber={number}", "PUT", DATA)
            assert (answer.status, b"NoSuchUpload" in answer.body) == (404, True)
        assert completed(client, upload, '"x"').status == 404
        assert (server.names(), server.uploads()) == (["old"], [])


def test_faults_are_chosen_by_what_a_request_wants() -> None:
    operations = ("begin", "part", "complete", "abort", "put", "delete", "list", "get", "head")
    for chosen in operations:
        with playing(faults.slow_down(), operation=chosen) as server, Client(server) as client:
            upload = begun(client) or "none"
            etag = client.ask(f"{PATH}?uploadId={upload}&partNumber=1", "PUT", DATA).headers.get("etag", "")
            completed(client, upload, etag)
            client.ask(f"{PATH}?uploadId={upload}", "DELETE")
            for target, method in [(PATH, "PUT"), (PATH, "DELETE"), ("/bucket?list-type=2", "GET"), (PATH, "GET")]:
                client.ask(target, method, b"" if method == "PUT" else None)
            client.ask(PATH, "HEAD")
            assert [entry.operation for entry in server.log] == list(operations)
            assert [entry.operation for entry in server.log if entry.status == 503] == [chosen]


def test_a_completion_whose_answer_is_lost_is_done() -> None:
    with playing(faults.reset(), operation="complete", times=1) as server, Client(server) as client:
        upload = begun(client)
        etag = client.ask(f"{PATH}?uploadId={upload}&partNumber=1", "PUT", DATA).headers["etag"]
        with pytest.raises(ConnectionResetError):
            completed(client, upload, etag)
        assert (server.get("a"), server.uploads()) == (DATA, [])
    with playing(faults.error_in_body(), operation="complete", times=1) as server, Client(server) as client:
        upload = begun(client)
        etag = client.ask(f"{PATH}?uploadId={upload}&partNumber=1", "PUT", DATA).headers["etag"]
        assert completed(client, upload, etag).status == 200
        assert (server.get("a"), server.uploads()) == (None, [upload])
        assert b"CompleteMultipartUploadResult" in completed(client, upload, etag).body
        assert server.get("a") == DATA
