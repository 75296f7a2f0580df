"""Files that claim more than they hold: a named error, before memory is allocated for the claim.

All are opened in one process with little memory, so that a number that is believed is a `MemoryError`, or the end of
the process.
"""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import anyrecord
from hostile.chunks import CLAIMS, chunk
from hostile.patches import PATCHES, patched

from checks.cases import ways
from checks.figures import Figure

__all__ = ["run"]

_ROOM = 256 << 20
"""Bytes that the process may take besides what it has at first."""
_GROWTH = 96 << 20
"""Bytes by which its resident memory may grow."""
_BOMB = 32 << 20
"""Bytes of zeros that a bomb unpacks to. They compress to a few kilobytes."""
_SECONDS = 300

_OPEN_ALL = """
import json, resource, sys
import anyrecord
small = anyrecord.Limits(decoded_chunk_bytes=1 << 20, decoded_bytes=2 << 20, spool_bytes=1 << 20)
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
room, names = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ways = {
    "read": lambda path, format, limits: list(anyrecord.open(path, format=format, limits=limits, threads=1)),
    "one record": lambda path, format, limits: anyrecord.open(path, format=format, limits=limits)[0],
    "unchecked": lambda path, format, limits: list(
        anyrecord.open(path, format=format, limits=limits, checksums=False, threads=1)
    ),
    "info": lambda path, format, limits: anyrecord.info(path, format=format, limits=limits),
    "verify": lambda path, format, limits: anyrecord.verify(path, format=format, limits=limits),
}
found = {}
for path, format, is_limited in names:
    for way, act in ways.items():
        try:
            result = act(path, format, small if is_limited else None)
            if way == "verify" and result.problems:
                raise result.problems[0]
            found[f"{path}: {way}"] = "no error"
        except Exception as error:
            found[f"{path}: {way}"] = f"{type(error).__name__} {error}"
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([found, (after - before) << 10]))
"""
_CLAIM_MAY_PASS = {"info", "unchecked", "one record"}
_BOMB_MAY_PASS = {"info"}
"""Ways that need not look at what the claim is about, and those that unpack nothing."""


def run(short: bool) -> list[Figure]:
    """Opens, reads and verifies files of bogus counts and sizes, and files that unpack to far more than the limit."""
    with tempfile.TemporaryDirectory() as folder:
        claims = _written(Path(folder), "claim", _claims())
        bombs = _written(Path(folder), "bomb", _bombs())
        return [
            _figure("bogus counts and sizes", claims, _CLAIM_MAY_PASS, is_limited=False, at_least=200),
            _figure("files that unpack to more than the limit", bombs, _BOMB_MAY_PASS, is_limited=True, at_least=50),
        ]


def _figure(what: str, files: list[tuple[str, str]], may_pass: set[str], is_limited: bool, at_least: int) -> Figure:
    figure = Figure(f"reads of {what}", at_least=at_least)
    asked = json.dumps([_ROOM, [(path, format, is_limited) for path, format in files]])
    command = [sys.executable, "-c", _OPEN_ALL]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode != 0:
        figure.violations.append(f"exit status {done.returncode}: {done.stderr[-300:]}")
        return figure
    found, growth = json.loads(done.stdout)
    figure.tried = len(found)
    for name, outcome in found.items():
        is_named = outcome.split()[0] in {"FormatError", "TruncatedError", "ChecksumError", "LimitError"}
        if not is_named and not (outcome == "no error" and name.rsplit(": ")[-1] in may_pass):
            figure.violations.append(f"{Path(name).name}: {outcome}")
    if growth > _GROWTH:
        figure.violations.append(f"memory grew by {growth:,} bytes")
    return figure


def _written(folder: Path, kind: str, files: Iterator[tuple[str, str, bytes]]) -> list[tuple[str, str]]:
    paths = []
    for number, (name, format, data) in enumerate(files):
        path = folder / f"{kind} {number} ({name.replace('/', ' ')})"
        path.write_bytes(data)
        paths.append((str(path), format))
    return paths


def _claims() -> Iterator[tuple[str, str, bytes]]:
    """Files whose checksums are right, and whose numbers are not."""
    for name in PATCHES:
        yield name, "ffrecord", patched(name)
    for number, (data, _) in enumerate(CLAIMS):
        yield f"claim {number}", "recordio", data
        yield f"claim {number} between others", "recordio", _chunk_of_one() + data + _chunk_of_one()
    for size in (2**31, 2**32 - 1):
        for codec in (0, 1, 2):
            yield f"a payload of {size}, codec {codec}", "recordio", chunk(b"x" * 30, 1, codec, size)
    for count in (2, 2**16, 2**31 - 1, 2**32 - 1):
        yield f"{count} records in one byte", "recordio", chunk(b"\0" * 4, count)
    for size in (2**24, 2**32 - 1):
        yield f"snappy that says it unpacks to {size}", "recordio", chunk(_snappy_stream(size), 1, codec=1)
    for size in (2**20, 2**31, 2**40, 2**63 - 1, 2**63, 2**64 - 17, 2**64 - 16, 2**64 - 1):
        yield f"a record of {size} bytes", "tfrecord", _tfrecord_header(size) + b"x" * 20
        yield f"a record of {size} bytes in gzip", "tfrecord", _gzip(_tfrecord_header(size) + b"x" * 20)


def _bombs() -> Iterator[tuple[str, str, bytes]]:
    """Files that are right, and unpack to far more than the limit."""
    for name, suffix, options in ways():
        codec = options.get("codec", "")
        if codec in ("", "none"):
            continue
        if suffix == ".recordio":
            options = {**options, "chunk_bytes": 2 * _BOMB}
        file = io.BytesIO()
        format = name.split("-")[0]
        with anyrecord.create(file, format=format, threads=1, **options) as out:
            out.write(bytes(_BOMB))
        yield name, format, file.getvalue()


def _chunk_of_one() -> bytes:
    return chunk(struct.pack("<I", 1) + b"x", 1)


def _snappy_stream(size: int) -> bytes:
    """A framed snappy stream of one compressed frame that says it unpacks to `size` bytes."""
    length = b""
    while size >= 0x80:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    frame = bytes(4) + length + bytes([size]) + b"\x00x"
    return b"\xff\x06\x00\x00sNaPpY" + b"\x00" + struct.pack("<I", len(frame))[:3] + frame


def _gzip(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=31)
    return stream.compress(data) + stream.flush()


def _tfrecord_header(size: int) -> bytes:
    length = struct.pack("<Q", size)
    crc = _crc32c(length)
    return length + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
