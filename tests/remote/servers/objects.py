"""The objects that our own servers hold, and the uploads that are not finished yet."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(frozen=True)
class Object:
    """One version of an object."""

    data: bytes
    etag: str
    generation: int
    modified: datetime


@dataclass(frozen=True)
class Page:
    """A part of a listing, and the marker that the next part goes on from."""

    objects: dict[str, Object]
    prefixes: list[str]
    next_marker: str | None


def md5_etag(data: bytes, generation: int) -> str:
    """As S3 and Google Cloud Storage make it of an object that was stored in one request."""
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class Objects:
    """Objects by key. Every change is a new version with a generation of its own."""

    def __init__(self, etag: Callable[[bytes, int], str] = md5_etag) -> None:
        self._etag = etag
        self._objects: dict[str, Object] = {}
        self._generation = 1_700_000_000_000_000
        self.uploads: dict[str, Upload] = {}

    def get(self, key: str) -> Object | None:
        return self._objects.get(key)

    def put(self, key: str, data: bytes, etag: str | None = None) -> Object:
        self.next_generation()
        now = datetime.now(UTC).replace(microsecond=0)
        made = Object(data, etag or self._etag(data, self._generation), self._generation, now)
        self._objects[key] = made
        return made

    def delete(self, key: str) -> bool:
        """Whether the object was there."""
        return self._objects.pop(key, None) is not None

    def keys(self) -> list[str]:
        return sorted(self._objects, key=str.encode)

    def page(
        self, prefix: str, delimiter: str, marker: str | None, limit: int, *, after: str = "", first: str = ""
    ) -> Page:
        """At most `limit` names in the order of their bytes: objects, and prefixes that end with the delimiter."""
        objects: dict[str, Object] = {}
        prefixes: list[str] = []
        last = marker
        for key in self.keys():
            if not key.startswith(prefix) or (after and key <= after) or key < first:
                continue
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            name = key if cut < 0 else key[: cut + len(delimiter)]
            if last is not None and name.encode() <= last.encode():
                continue
            if len(objects) + len(prefixes) == limit:
                return Page(objects, prefixes, last)
            if cut < 0:
                objects[key] = self._objects[key]
            else:
                prefixes.append(name)
            last = name
        return Page(objects, prefixes, None)

    def next_generation(self) -> int:
        self._generation += 1
        return self._generation

    def begin_upload(self, key: str) -> str:
        name = f"upload-{self.next_generation()}"
        self.uploads[name] = Upload(key)
        return name


@dataclass
class Upload:
    """The parts of an object that is stored in several requests."""

    key: str
    parts: dict[str, bytes] = field(default_factory=dict)
    """By number (S3) or name (Azure)."""
