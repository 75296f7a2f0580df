"""S3 as moto has it: complete, with conditions and multipart uploads, but slow. For correctness, not for timing."""

from __future__ import annotations

import sys

from . import signing
from .documents import children, text_of
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

    def get(self, key: str) -> bytes | None:
        return signing.ask(self.port, "GET", f"/{BUCKET}/{quoted(key)}")

    def names(self) -> list[str]:
        names: list[str] = []
        token: dict[str, str] = {}
        while True:
            said = signing.ask(self.port, "GET", f"/{BUCKET}", {"list-type": "2", **token})
            assert said is not None
            names += [text_of(child, "Key") for child in children(said, "Contents")]
            following = children(said, "NextContinuationToken")
            if not following:
                return sorted(names)
            token = {"continuation-token": following[0].text or ""}

    def uploads(self) -> list[str]:
        said = signing.ask(self.port, "GET", f"/{BUCKET}", {"uploads": ""})
        assert said is not None
        return sorted(text_of(child, "UploadId") for child in children(said, "Upload"))

    def empty(self) -> None:
        """Removes all objects and uploads."""
        signing.ask(self.port, "POST", "/moto-api/reset")
        self.prepare()

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def environment(self) -> dict[str, str]:
        return {"MOTO_S3_DEFAULT_MAX_KEYS": "100"}  # listings of more than one page without a thousand objects

    def prepare(self) -> None:
        signing.put(self.port, f"/{BUCKET}", b"")
