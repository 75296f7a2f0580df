"""A web server on this machine that answers ranges of files in memory, in a process of its own."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NoReturn

__all__ = ["serve"]


@contextmanager
def serve(files: Mapping[str, bytes]) -> Iterator[str]:
    """The address of a server with these files. Each has an ETag, so clients can tell versions apart."""
    listening = _Server(("127.0.0.1", 0), _handler(files))
    child = os.fork()
    if child == 0:
        _serve(listening)
    listening.server_close()
    try:
        yield f"http://127.0.0.1:{listening.server_address[1]}"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: clients are killed in the middle of an answer."""


def _serve(listening: ThreadingHTTPServer) -> NoReturn:
    try:
        listening.serve_forever()
    finally:
        os._exit(0)


def _handler(files: Mapping[str, bytes]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            data = files.get(self.path.lstrip("/"))
            if data is None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            begin, end = self._range(len(data))
            self.send_response(206 if "range" in self.headers else 200)
            self.send_header("Content-Length", str(end - begin))
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
            self.send_header("ETag", f'"{len(data)}"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(memoryview(data)[begin:end])

        do_HEAD = do_GET

        def _range(self, size: int) -> tuple[int, int]:
            asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("range", "bytes=0-"))
            assert asked, self.headers
            first, last = asked.groups()
            if not first:
                return max(0, size - int(last)), size
            return int(first), min(size, int(last) + 1) if last else size

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    return Handler
