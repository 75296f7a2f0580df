"""A proxy in front of an HTTP server. It counts requests, and stops at one of them: before, within or after it.

What is stopped for is done while the request is held. Requests that had arrived whole are still carried out, as a real
server does it whose client is gone; all others are not. Nothing depends on time.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Self

__all__ = ["STAGES", "HoldingProxy", "Moment", "Stage"]

Stage = Literal["before", "within", "after"]
STAGES: Final[tuple[Stage, ...]] = ("before", "within", "after")
_PIECE = 1 << 16
_END = b"\r\n\r\n"


@dataclass(frozen=True)
class Moment:
    """A request by its number, the first is 1, and where in it. `within`: the server gets half of it.

    `after`: the server has answered, and the client does not get the answer.
    """

    request: int
    stage: Stage

    def __str__(self) -> str:
        return f"{self.stage} request {self.request}"


class HoldingProxy:
    """Listens on a free port of 127.0.0.1. Each connection carries one request."""

    def __init__(self, server_port: int) -> None:
        self._server = ("127.0.0.1", server_port)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._moment: Moment | None = None
        self._act: Callable[[], None] = lambda: None
        self._is_over = False
        self.requests: list[str] = []
        """The first line of each request that arrived whole."""

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_over = True
        with suppress(OSError):  # wakes up whoever waits for a connection
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self.settle()

    def begin(self, moment: Moment | None, act: Callable[[], None]) -> None:
        """Counts from 1 again. At the moment, `act` is called once; then the client must be gone."""
        self.settle()
        with self._lock:
            self.requests, self._moment, self._act, self._is_over = [], moment, act, False

    def settle(self) -> None:
        """Returns when nothing is under way any more. The client must be gone."""
        while self._threads:
            self._threads.pop().join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):  # either side may be gone
            head, body = _message(client)
            if not head:
                return
            with self._lock:
                if self._is_over:
                    return
                self.requests.append(head.partition(b"\r\n")[0].decode("latin-1"))
                is_now = self._moment is not None and self._moment.request == len(self.requests)
                stage = self._moment.stage if is_now and self._moment else None
                self._is_over = stage in ("before", "within")
            sent = _closing(head) + body
            if stage == "before":
                self._act()
                return
            with socket.create_connection(self._server) as server:
                if stage == "within":
                    server.sendall(sent[: len(_closing(head)) + len(body) // 2])
                    self._act()
                    return
                server.sendall(sent)
                answer = b"".join(iter(lambda: server.recv(_PIECE), b""))
            if stage == "after":
                with self._lock:
                    self._is_over = True
                self._act()
                return
            client.sendall(answer)


def _message(client: socket.socket) -> tuple[bytes, bytes]:
    """Head and body of a request. Both are empty if the client is gone before all of it came."""
    received = bytearray()
    while (end := received.find(_END)) < 0:
        if not (piece := client.recv(_PIECE)):
            return b"", b""
        received += piece
        if b"100-continue" in received and _END in received:
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    head, body = bytes(received[: end + len(_END)]), received[end + len(_END) :]
    fields = [line.partition(b":") for line in head.split(b"\r\n")]
    size = next((int(value) for name, _, value in fields if name.lower() == b"content-length"), 0)
    while len(body) < size:
        if not (piece := client.recv(_PIECE)):
            return b"", b""
        body += piece
    return head, bytes(body)


def _closing(head: bytes) -> bytes:
    """The head of the request that tells the server to close the connection after its answer, and so to the client."""
    line, _, rest = head.partition(b"\r\n")
    kept = [
        field
        for field in rest[: -len(_END)].split(b"\r\n")
        if not field.lower().startswith((b"connection:", b"expect:"))
    ]
    return b"\r\n".join([line, *kept, b"connection: close"]) + _END
