"""S3 as moto has it: complete, with conditions and multipart uploads, but slow. For correctness, not for timing."""

from __future__ import annotations

import http.client
import sys

from .program import Program
from .server import BUCKET, quoted, s3_storage


class Moto(Program):
    """`moto_server`, in a process of its own."""

    scheme = "s3"

    @property
    def storage(self) -> dict[str, str]:
        return s3_storage(self.endpoint)

    def put(self, key: str, data: bytes) -> None:
        self._send(f"/{BUCKET}/{quoted(key)}", data)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def prepare(self) -> None:
        self._send(f"/{BUCKET}", b"")

    def _send(self, path: str, data: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request("PUT", path, data)
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status == 200, f"moto refused {path}: {answer.status} {said[:500]!r}"
        finally:
            connection.close()
