"""Pictures: their width and height, from their headers."""

from __future__ import annotations

import struct
from binascii import crc32
from typing import Any, Final

__all__ = ["bmp", "gif", "jpeg", "named", "png", "webp"]

_PNG_MODES: Final = {0: "gray", 2: "RGB", 3: "palette", 4: "gray and alpha", 6: "RGBA"}
_PNG_DEPTHS: Final = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_JPEG_MODES: Final = {1: "gray", 3: "color", 4: "CMYK"}
_SIZE_MARKERS: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_MOST_SEGMENTS: Final = 1000

Found = tuple[str, str, dict[str, Any]]


def png(data: memoryview, size: int) -> Found | None:
    """
    at byte   0  signature of 8 bytes
              8  13, the length of the first chunk
             12  IHDR
             16  width, height; then bits, color type, compression, filter, interlacing
             29  CRC-32 of bytes 12 .. 29
    """
    if bytes(data[:8]) != b"\x89PNG\r\n\x1a\n":
        return None
    if len(data) < 33:
        return _damaged("png", "the record ends in its header")
    length, name, width, height, bits, color = struct.unpack_from(">I4sIIBB", data, 8)
    if length != 13 or name != b"IHDR" or crc32(data[12:29]) != struct.unpack_from(">I", data, 29)[0]:
        return _damaged("png", "the checksum of its header is wrong")
    if not (0 < width < 1 << 31 and 0 < height < 1 << 31) or bits not in _PNG_DEPTHS.get(color, ()):
        return _damaged("png", "its header is not valid")
    mode = _PNG_MODES[color]
    return _picture("png", width, height, mode if bits == 8 else f"{mode}, {bits} bit{'s' if bits > 1 else ''}")


def jpeg(data: memoryview, size: int) -> Found | None:
    """Segments of a marker and a length follow each other. One of the first says width and height."""
    if bytes(data[:3]) != b"\xff\xd8\xff":
        return None
    at = 2
    for _ in range(_MOST_SEGMENTS):
        while bytes(data[at : at + 2]) == b"\xff\xff" and at < 4096:  # fill bytes
            at += 1
        if at + 4 > len(data):
            break
        start, marker, length = struct.unpack_from(">BBH", data, at)
        if start != 0xFF or length < 2 or marker in (0x00, 0xD8, 0xD9, 0xDA):
            return None if at == 2 else _damaged("jpeg", "it has no width and height")
        if marker in _SIZE_MARKERS:
            if at + 10 > len(data):
                break
            height, width, components = struct.unpack_from(">HHB", data, at + 5)
            if width == 0 or length != 8 + 3 * components:
                return _damaged("jpeg", "its header is not valid")
            return _picture("jpeg", width, height, _JPEG_MODES.get(components, f"{components} components"))
        at += 2 + length
    if len(data) == size:
        return _damaged("jpeg", "the record ends in its header")
    return "jpeg", "width and height come later in the record", {"width": None, "height": None, "mode": None}


def webp(data: memoryview, size: int) -> Found | None:
    """A RIFF file. Its first chunk is lossy (VP8), lossless (VP8L) or has a header of its own (VP8X)."""
    if bytes(data[:4]) != b"RIFF" or bytes(data[8:12]) != b"WEBP":
        return None
    if len(data) < 30:
        return _damaged("webp", "the record ends in its header")
    if struct.unpack_from("<I", data, 4)[0] + 8 > size + 1:
        return _damaged("webp", "the record ends before the picture does")
    first = bytes(data[12:16])
    if first == b"VP8 " and bytes(data[23:26]) == b"\x9d\x01\x2a":
        width, height = (number & 0x3FFF for number in struct.unpack_from("<HH", data, 26))
        return _picture("webp", width, height, "lossy")
    if first == b"VP8L" and data[20] == 0x2F:
        bits = struct.unpack_from("<I", data, 21)[0]
        return _picture("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, "lossless")
    if first == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return _picture("webp", width, height, "animated" if data[20] & 2 else "extended")
    return _damaged("webp", "its header is not valid")


def gif(data: memoryview, size: int) -> Found | None:
    if bytes(data[:6]) not in (b"GIF87a", b"GIF89a"):
        return None
    if len(data) < 13:
        return _damaged("gif", "the record ends in its header")
    width, height, _, _, aspect = struct.unpack_from("<HHBBB", data, 6)
    if aspect not in (0, 49):  # square pixels; a text that begins with these letters has another character here
        return None
    return _picture("gif", width, height, "palette")


def bmp(data: memoryview, size: int) -> Found | None:
    """Two letters are little evidence, so the sizes in the header must be right, too."""
    if bytes(data[:2]) != b"BM" or len(data) < 30:
        return None
    file_bytes, zero, offset, header, width, height, planes, bits = struct.unpack_from("<IIIIiiHH", data, 2)
    if file_bytes != size or zero or planes != 1 or header not in (40, 52, 56, 108, 124) or offset > size:
        return None
    if width <= 0 or height == 0 or bits not in (1, 4, 8, 16, 24, 32):
        return None
    return _picture("bmp", width, abs(height), f"{bits} bit{'s' if bits > 1 else ''}")


def _picture(kind: str, width: int, height: int, mode: str) -> Found:
    if width == 0 or height == 0:
        return _damaged(kind, "its width or height is 0")
    return kind, f"{width} x {height}, {mode}", {"width": width, "height": height, "mode": mode}


def _damaged(kind: str, why: str) -> Found:
    return kind, f"damaged: {why}", {"width": None, "height": None, "mode": None, "damaged": why}


def named(head: bytes) -> str:
    """What kind of picture begins with these bytes, in words that follow a number of bytes."""
    for kind, begin in (("PNG", b"\x89PNG\r\n\x1a\n"), ("JPEG", b"\xff\xd8\xff"), ("GIF", b"GIF8")):
        if head.startswith(begin):
            return f" of {kind}"
    return " of WebP" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else ""
