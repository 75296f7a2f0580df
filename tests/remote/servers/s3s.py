"""S3 as `s3s-fs` has it: compiled and fast, checks signatures, but ignores If-Match and If-None-Match of GET."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from . import signing
from .files import files_in
from .program import Program
from .server import ACCESS_KEY, BUCKET, SECRET_KEY, quoted, s3_storage

INSTALL = "cargo install s3s-fs --version 0.14.1 --locked --features binary --root .venv"
"""What `make test` does."""


_UPLOAD = re.compile(r"\.upload(_id)?-(?P<id>[0-9a-f-]{36})\.")


def binary() -> str:
    """The program: what S3S_FS names, or `s3s-fs` beside the Python that runs, or on the PATH."""
    if named := os.environ.get("S3S_FS"):
        return named
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which("s3s-fs", path=folders)
    assert found, f"s3s-fs is missing; run `{INSTALL}` (`make test` does it), or name the program in S3S_FS"
    return found


class S3s(Program):
    """`s3s-fs`, with the files in a folder of its own."""

    scheme = "s3"

    @property
    def storage(self) -> dict[str, str]:
        return s3_storage(self.endpoint)

    def put(self, key: str, data: bytes) -> None:
        signing.put(self.port, f"/{BUCKET}/{quoted(key)}", data)

    def get(self, key: str) -> bytes | None:
        path = self._root / BUCKET / key
        return path.read_bytes() if path.is_file() else None

    def names(self) -> list[str]:
        return files_in(self._root / BUCKET)

    def uploads(self) -> list[str]:
        """It has a file for each upload, and one for each part: beside the buckets, with the id in their names."""
        found = (_UPLOAD.match(path.name) for path in self._root.iterdir())
        return sorted({matched["id"] for matched in found if matched})

    def command(self) -> list[str]:
        (self._root / BUCKET).mkdir(parents=True, exist_ok=True)
        keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]
        return [binary(), "--host", "127.0.0.1", "--port", str(self.port), *keys, str(self._root)]

    def prepare(self) -> None:
        """The bucket is a folder, which is there already."""

    @property
    def _root(self) -> Path:
        return self.folder / "root"
