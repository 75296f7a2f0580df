"""HTTP/1.1 on one connection: reads requests, and sends answers whole or as a fault wants them."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import parse_qsl, unquote, urlsplit

from .faults import Cut, Fault
from .messages import Request, Response

HEAD_BYTES = 1 << 20
PIECE_BYTES = 1 << 18
SLACK_SECONDS = 0.005


class Link:
    """A line with so many bytes a second; what is carried waits for everything before it."""

    def __init__(self, bytes_per_second: float) -> None:
        self._seconds_per_byte = 1 / bytes_per_second
        self._free = 0.0
        self.piece_bytes = min(max(int(bytes_per_second * SLACK_SECONDS), 1), PIECE_BYTES)

    async def carry(self, count: int) -> None:
        """Returns when the line has carried these bytes.

        A sleep is never exact: the line may be ahead and behind by a little, so that it has its speed in the long run.
        """
        now = asyncio.get_running_loop().time()
        self._free = max(self._free, now - SLACK_SECONDS) + count * self._seconds_per_byte
        if self._free > now + SLACK_SECONDS:
            await asyncio.sleep(self._free - now)


class Connection:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        writer.transport.set_write_buffer_limits(0)  # what `drain` waits for has left this process

    @property
    def socket(self) -> socket.socket:
        found: socket.socket = self._writer.get_extra_info("socket")
        return found

    async def next_request(self) -> Request | None:
        """The next request without its body. None if the client has closed the connection."""
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        line, *lines = head.rstrip("\r\n").split("\r\n")
        method, target, _ = line.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
        if headers.get("expect", "").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        parts = urlsplit(target)  # a client that takes us for a proxy sends a whole URL
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return Request(method, target, unquote(parts.path), query, headers)

    async def body(self, headers: Mapping[str, str]) -> bytes:
        """The body of the request that has come."""
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return await self._reader.readexactly(int(headers.get("content-length", 0)))
        body = b""
        while count := int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            body += await self._reader.readexactly(count)
            await self._reader.readexactly(2)
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return body

    async def break_off(self, cut: Cut, headers: Mapping[str, str]) -> None:
        """Reads only a part of the body of a request."""
        await self._reader.readexactly(cut.bytes_of(int(headers.get("content-length", 0))))
        if cut.how == "stall":
            await asyncio.Event().wait()  # what is not read hides from us that the client gives up
        await self._end(cut)

    async def send(
        self,
        response: Response,
        *,
        with_body: bool,
        fault: Fault | None,
        link: Link | None,
        sent: Callable[[int], None],
    ) -> bool:
        """Sends an answer. Says whether the connection can be used again. `sent` is called before each piece goes."""
        cut = fault.cut if fault else None
        if cut and cut.after is None:
            return await self._end(cut)
        chunked = bool(fault and fault.chunked)
        body = memoryview(response.body) if with_body else memoryview(b"")
        body = body[: cut.bytes_of(len(body))] if cut else body
        slow = Link(fault.bytes_per_second) if fault and fault.bytes_per_second else None
        links = [each for each in (link, slow) if each]
        size = min((each.piece_bytes for each in links), default=PIECE_BYTES)
        start, following = 0, response.head(chunked=chunked)
        while start < len(body):
            piece = body[start : start + size]
            for each in links:
                await each.carry(len(piece))
            sent(len(piece))
            # The head goes with the first piece: a client that has the head of a small answer has all of it.
            framed = _framed(piece) if chunked else piece
            self._writer.write(b"".join((following, framed)) if following else framed)
            start, following = start + size, b""
            if start < len(body):
                await self._writer.drain()
        sent(0)
        if chunked and with_body and not cut:
            following += b"0\r\n\r\n"
        self._writer.write(following)
        return await self._end(cut) if cut else True

    async def drained(self) -> None:
        await self._writer.drain()

    async def _end(self, cut: Cut) -> bool:
        """Ends an answer that is not complete."""
        await self._writer.drain()
        if cut.how == "stall":
            while await self._reader.read(1 << 16):  # until the client gives up
                pass
        if cut.how == "reset":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        return False

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):  # the client has reset the connection
            await self._writer.wait_closed()


def _framed(piece: memoryview) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(piece), bytes(piece))
