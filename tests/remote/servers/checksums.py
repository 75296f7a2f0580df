"""Checksums of data, as clients send them with requests and servers send them with answers: base64."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping

from .crc import crc32c, crc64nvme
from .messages import Request


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def md5(data: bytes) -> str:
    return _base64(hashlib.md5(data, usedforsecurity=False).digest())


def google_crc32c(data: bytes) -> str:
    return _base64(crc32c(data).to_bytes(4, "big"))


def azure_crc64(data: bytes) -> str:
    return _base64(crc64nvme(data).to_bytes(8, "little"))


_BY_HEADER: Mapping[str, Callable[[bytes], str]] = {
    "content-md5": md5,
    "x-amz-checksum-crc32": lambda data: _base64(zlib.crc32(data).to_bytes(4, "big")),
    "x-amz-checksum-crc32c": google_crc32c,
    "x-amz-checksum-crc64nvme": lambda data: _base64(crc64nvme(data).to_bytes(8, "big")),
    "x-amz-checksum-sha1": lambda data: _base64(hashlib.sha1(data, usedforsecurity=False).digest()),
    "x-amz-checksum-sha256": lambda data: _base64(hashlib.sha256(data).digest()),
    "x-ms-content-crc64": azure_crc64,
}


def wrong_checksum(request: Request) -> str | None:
    """The header whose checksum is not that of the body. None if all are right, or none was sent."""
    for name, checksum in _BY_HEADER.items():
        if (sent := request.headers.get(name)) is not None and sent != checksum(request.body):
            return name
    for sent in filter(None, request.headers.get("x-goog-hash", "").split(",")):
        kind, _, value = sent.strip().partition("=")
        if value != {"md5": md5, "crc32c": google_crc32c}[kind](request.body):
            return "x-goog-hash"
    if (sent := request.headers.get("x-amz-content-sha256", "")) and len(sent) == 64:  # else it says "unsigned"
        return None if sent == hashlib.sha256(request.body).hexdigest() else "x-amz-content-sha256"
    return None
