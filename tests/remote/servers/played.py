"""Our own server: HTTP/1.1 in a thread, with a log, faults, waves, latency and a capped link.

with Played({"a.ffr": data}, gate=True) as server:
    server.play(faults.slow_down(), number=2)
    read(server.url("a.ffr"), storage=server.storage)
    assert server.requests == 3
    assert server.waves == 2
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal, Self

from .azure import Azure
from .connection import HEAD_BYTES, Connection, Link
from .faults import Exchange, Fault, Rule, Script
from .gcs import Gcs
from .messages import Request, Response
from .operations import Operation, operation
from .protocol import Protocol
from .s3 import S3
from .server import Server
from .waves import Gate, Waves
from .web import Web

PROTOCOLS: dict[str, type[Protocol]] = {"s3": S3, "gcs": Gcs, "azure": Azure, "http": Web}

CONNECTIONS = 4096
"""So many clients can connect before the server's thread runs. Linux lets one more wait for a second."""


@dataclass
class Entry:
    """One request in the log."""

    number: int
    """The first is 1."""
    method: str
    path: str
    """Decoded, with the bucket, without the query."""
    key: str
    """The object; empty if the request is about the bucket."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    wave: int
    connection: int
    """Connections are numbered from 1."""
    fault: str | None = None
    """The name of the fault that was played."""
    status: int | None = None
    """None: no status was sent yet, or ever."""
    bytes: int = 0
    """Bytes of the body that were sent."""
    received: int | None = None
    """Bytes of the body of the request; None if it has not come whole."""

    @property
    def range(self) -> str | None:
        """The range as the client asked for it."""
        return self.headers.get("x-ms-range", self.headers.get("range"))

    @property
    def operation(self) -> Operation:
        """What the client wants."""
        return operation(Request(self.method, self.path, self.path, self.query, self.headers), self.key)


class Played(Server):
    """Serves `objects` from memory, by one of the protocols, and does what the script says.

    `latency` is in seconds and comes before the first byte of every answer. `bytes_per_second` is what all connections
    can send together. With `gate`, answers are held until no further request comes (see `Gate`).
    `page` is the most names in one part of a listing.
    """

    def __init__(
        self,
        objects: Mapping[str, bytes] | None = None,
        *,
        protocol: Literal["s3", "gcs", "azure", "http"] = "s3",
        latency: float = 0.0,
        bytes_per_second: float | None = None,
        gate: bool = False,
        page: int = 1000,
    ) -> None:
        self.protocol = PROTOCOLS[protocol]()
        self.protocol.page = page
        self.scheme = self.protocol.scheme
        self.objects = self.protocol.objects()
        for key, data in (objects or {}).items():
            self.objects.put(key, data)
        self.latency = latency
        self.log: list[Entry] = []
        self._link = Link(bytes_per_second) if bytes_per_second else None
        self._gate = Gate() if gate else None
        self._script = Script()
        self._lock = threading.Lock()
        self._waves = Waves()
        self._connections = 0
        self._sockets: set[socket.socket] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._errors: list[BaseException] = []

    @property
    def storage(self) -> dict[str, str]:
        return self.protocol.storage(self.endpoint)

    def url(self, key: str) -> str:
        return self.protocol.url(self.endpoint, key)

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            self.objects.put(key, data)

    def get(self, key: str) -> bytes | None:
        with self._lock:
            found = self.objects.get(key)
            return None if found is None else found.data

    def names(self) -> list[str]:
        with self._lock:
            return self.objects.keys()

    def uploads(self) -> list[str]:
        """On Azure the keys of blobs with blocks that are not committed: nothing can remove those."""
        with self._lock:
            return sorted(self.objects.uploads)

    def play(
        self,
        fault: Fault,
        *,
        number: int | Collection[int] | None = None,
        path: str | None = None,
        method: str | None = None,
        operation: Operation | None = None,
        times: int | None = None,
        chance: float | None = None,
        seed: int = 0,
        when: Callable[[Request], bool] | None = None,
    ) -> Rule:
        """Adds a rule to the script; see `Rule`. Of several rules that hold for a request, the first is played."""
        rule = Rule(fault, number, path, method, operation, times, chance, seed, when)
        with self._lock:
            self._script.rules.append(rule)
        return rule

    def clear(self) -> None:
        """Empties the log and the script: the next request is number 1 and wave 1."""
        with self._lock:
            self.log = []
            self._waves = Waves()
            self._script = Script()

    @property
    def requests(self) -> int:
        """How many requests have come."""
        return len(self.log)

    @property
    def waves(self) -> int:
        """The largest wave in the log; 0 if it is empty."""
        return max((entry.wave for entry in self.log), default=0)

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS)
        self.port = self._listener.getsockname()[1]
        self._sockets.add(self._listener)
        self._thread = threading.Thread(target=self._run, name=f"played-{self.port}", daemon=True)
        self._thread.start()
        _running.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _running.discard(self)
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._errors and error is None:
            raise AssertionError("the server itself failed") from self._errors[0]

    # The thread of the server.

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._accept())
        finally:
            self._loop.close()

    async def _accept(self) -> None:
        server = await asyncio.start_server(self._begin, sock=self._listener, limit=HEAD_BYTES, backlog=CONNECTIONS)
        await self._stop.wait()
        # A connection that was just accepted becomes a task in some steps of the loop. Until then the server must not
        # be closed: it would forget the connection. So first no more are accepted.
        self._loop.remove_reader(self._listener)
        for _ in range(5):
            await asyncio.sleep(0)
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # A connection that came at the last moment was never served, and one that is closing may still have to send.
        for writer in self._writers:
            writer.transport.abort()
        for _ in range(3):  # the loop closes a socket some steps after it was told to
            await asyncio.sleep(0)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        self._writers.add(writer)
        task = asyncio.create_task(self._serve(Connection(reader, writer), self._connections))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection, number: int) -> None:
        self._sockets.add(connection.socket)
        try:
            while request := await connection.next_request():
                if not await self._answer(connection, number, request):
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client is gone
        except Exception as error:  # the test fails, not only this connection
            self._errors.append(error)
        finally:
            self._sockets.discard(connection.socket)
            await connection.close()

    async def _answer(self, connection: Connection, number: int, request: Request) -> bool:
        entry, fault, waves = self._arrived(number, request)
        if fault and fault.request_cut:
            await connection.break_off(fault.request_cut, request.headers)
            waves.answered(entry.wave)
            return False
        request = replace(request, body=await connection.body(request.headers))
        entry.received = len(request.body)
        response = self._carry_out(request, fault)
        if self._gate:
            self._gate.arrived()
            await self._gate.wait()
        if late := self.latency + (fault.late_seconds if fault else 0.0):
            await asyncio.sleep(late)

        def sent(count: int) -> None:
            entry.status = response.status
            entry.bytes += count

        with_body = request.method != "HEAD" and response.status not in (204, 304)
        reusable = await connection.send(response, with_body=with_body, fault=fault, link=self._link, sent=sent)
        if not (fault and fault.cut and fault.cut.how == "stall"):
            waves.answered(entry.wave)
        await connection.drained()
        return reusable and request.headers.get("connection", "").lower() != "close"

    def _arrived(self, connection: int, request: Request) -> tuple[Entry, Fault | None, Waves]:
        """Puts a request into the log, and finds what goes wrong with it."""
        with self._lock:
            key = self.protocol.key(request)
            entry = Entry(
                len(self.log) + 1,
                request.method,
                request.path,
                key,
                request.query,
                request.headers,
                self._waves.arrived(),
                connection,
            )
            self.log.append(entry)
            fault = self._script.choose(entry.number, key, request)
            entry.fault = fault.name if fault else None
            return entry, fault, self._waves

    def _carry_out(self, request: Request, fault: Fault | None) -> Response:
        with self._lock:
            exchange = Exchange(request, self.protocol, self.objects, self.port)
            return fault.change(exchange) if fault and fault.change else exchange.right


_running: set[Played] = set()


def _let_go() -> None:
    """A forked child closes its copies of our sockets: a connection ends only when nobody has it open any more."""
    for server in _running:
        for held in server._sockets:
            with suppress(OSError):
                os.close(held.fileno())
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
