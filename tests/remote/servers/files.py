"""HTTP servers that serve the files of a folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .program import Program
from .server import quoted


class Files(Program):
    """Plain HTTP by werkzeug: no listing, no writing. If-Match is ignored where there is a Range."""

    scheme = "http"
    program = "file_program.py"

    @property
    def storage(self) -> dict[str, str]:
        return {}

    def url(self, key: str) -> str:
        return f"{self.endpoint}/{quoted(key)}"

    def put(self, key: str, data: bytes) -> None:
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        new = self.folder / "new"
        new.write_bytes(data)
        os.replace(new, path)  # a reader sees the old file or the new one

    def get(self, key: str) -> bytes | None:
        path = self._root / key
        return path.read_bytes() if path.is_file() else None

    def names(self) -> list[str]:
        return files_in(self._root)

    def command(self) -> list[str]:
        self._root.mkdir(exist_ok=True)
        return [sys.executable, str(Path(__file__).with_name(self.program)), str(self.port), str(self._root)]

    def prepare(self) -> None:
        """There are no buckets."""

    @property
    def _root(self) -> Path:
        return self.folder / "root"


class Dav(Files):
    """HTTP with WebDAV by WsgiDAV: listing and writing as well, and conditions."""

    program = "dav_program.py"


def files_in(folder: Path) -> list[str]:
    """The files of a folder and its folders, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
