"""S3 as moto has it: complete, with conditions and multipart uploads, but slow. For correctness, not for timing."""

from __future__ import annotations

import sys

from . import signing
from .program import Program
from .server import BUCKET, quoted, s3_storage


class Moto(Program):
    """The server that comes with moto. It does not check signatures."""

    scheme = "s3"

    @property
    def storage(self) -> dict[str, str]:
        return s3_storage(self.endpoint)

    def put(self, key: str, data: bytes) -> None:
        signing.put(self.port, f"/{BUCKET}/{quoted(key)}", data)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def environment(self) -> dict[str, str]:
        return {"MOTO_S3_DEFAULT_MAX_KEYS": "100"}  # listings of more than one page without a thousand objects

    def prepare(self) -> None:
        signing.put(self.port, f"/{BUCKET}", b"")
