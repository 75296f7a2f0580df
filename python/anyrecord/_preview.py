"""`preview` says what a record is, from its bytes alone: text, JSON, a picture, an array and so on.

Records come from anywhere, so their bytes are hostile. Nothing is executed, unpickled or decompressed at length. Every
number in a record is a claim that is checked before it is used. Time and memory are bounded whatever the bytes are:
only `PREVIEW_BYTES` are read of what has to be read byte by byte, and loops have a limit.

| kind | what it is | details |
|---|---|---|
| `empty` | a record of 0 bytes | |
| `text` | UTF-8 without control characters | `text`, `lines` |
| `json` | a JSON object or array | `type`, `items`, `keys` of an object, `complete` |
| `msgpack` | a msgpack map or array | `type`, `items`, `keys` of a map, `complete` |
| `tf_example`, `tf_sequence_example` | protocol buffers of TensorFlow | `features`, `feature_lists`, `complete` |
| `png`, `jpeg`, `webp`, `gif`, `bmp` | a picture | `width`, `height`, `mode` |
| `npy` | a numpy array | `dtype`, `shape`, `fortran_order` |
| `npz`, `zip` | an archive | `files`, `names` |
| `safetensors` | tensors | `tensors`, `names` |
| `pickle` | one pickle or several; they are never loaded | `protocol`, `type`, `globals` |
| `gzip`, `zstd`, `parquet`, `wav`, ... | known by the first bytes | |
| `bytes` | anything else | `hex` |

A detail that is not known is None or left out. `damaged` in the details says what is wrong with the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from anyrecord._dataclasses import dataclass

__all__ = ["PREVIEW_BYTES", "Preview", "clip", "one_line", "preview"]

PREVIEW_BYTES: Final = 64 << 10
"""How many bytes of a record `preview` needs. With more it finds the size of pictures that have large comments."""

Found: TypeAlias = tuple[str, str, dict[str, Any]]
"""A kind, a summary that may still have any characters and any length, and details."""
Detector: TypeAlias = Callable[[memoryview, int], Found | None]
"""Gets the bytes at hand and the size of the whole record."""

_NOT_TEXT: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_ESCAPED: Final = re.compile(r"[^ -~\xa1-\xac\xae-\xff]")
"""What `one_line` looks at: everything but the usual characters."""
_KEPT: Final = "\u200c\u200d\u3000"
"""Characters that are not printable by themselves, and that texts of many languages need."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a record is."""

    kind: str
    """A lower-case name; see the table of this module."""
    summary: str
    """One line about the contents, without control characters. It does not repeat the kind."""
    details: dict[str, Any]
    """Facts for programs. They can be written as JSON."""


def preview(record: bytes | bytearray | memoryview, *, size: int | None = None, width: int = 60) -> Preview:
    """Says what a record is.

    >>> preview(b'{"label": 7, "name": "cat"}')
    Preview(kind='json', summary='{"label": 7, "name": "cat"}', details={'type': 'object', 'items': 2, ...})
    >>> preview(b"\\xff\\x00\\x1b")
    Preview(kind='bytes', summary='ff 00 1b', details={'hex': 'ff001b'})

    If `record` is only the beginning of a record, pass the whole record's size as `size`. The summary takes at most
    `width` columns of a terminal.
    """
    data = memoryview(record)
    data = data.cast("B") if data.c_contiguous and data.nbytes else memoryview(data.tobytes())
    whole = max(len(data), 0 if size is None else size)
    kind, summary, details = _found(data, whole)
    return Preview(kind, clip(one_line(summary[: 2 * width + 16]), width, cut=len(summary) > 2 * width + 16), details)


def _found(data: memoryview, size: int) -> Found:
    if size == 0:
        return "empty", "", {}
    if not data:
        return "bytes", "", {"hex": ""}
    from anyrecord._preview_arrays import npy, safetensors, zip_archive
    from anyrecord._preview_images import bmp, gif, jpeg, png, webp
    from anyrecord._preview_magic import by_magic
    from anyrecord._preview_msgpack import msgpack
    from anyrecord._preview_pickle import pickle
    from anyrecord._preview_tf_example import tf_example

    detectors: tuple[Detector, ...] = (
        *(png, jpeg, webp, gif, npy, zip_archive, pickle, by_magic, text, bmp, safetensors, tf_example, msgpack),
    )
    for detector in detectors:
        if (found := detector(data, size)) is not None:
            return found
    return "bytes", bytes(data[:256]).hex(" ") + (" …" if size > 256 else ""), {"hex": bytes(data[:32]).hex()}


def text(data: memoryview, size: int) -> Found | None:
    """Text, or JSON."""
    shown = decoded(data[:PREVIEW_BYTES], size)
    if not shown or _NOT_TEXT.search(shown):
        return None
    from anyrecord._preview_json import json

    complete = len(data) == size <= PREVIEW_BYTES
    if (found := json(shown, complete)) is not None:
        return found
    lines = shown.count("\n") + (not shown.endswith("\n")) if complete else None
    return "text", shown[:4096], {"text": shown[:200], "lines": lines}


def decoded(data: memoryview, size: int) -> str | None:
    """Decodes UTF-8. Bytes that are cut off may end in the middle of a character."""
    raw = bytes(data)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data" or len(raw) == size:
            return None
        return raw[: error.start].decode()


def one_line(text: str) -> str:
    """Escapes line ends, control characters, and characters that change the direction of text or cannot be seen."""
    return _ESCAPED.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable() or character in _KEPT:
        return character
    return character.encode("unicode_escape").decode()


def clip(text: str, width: int, *, cut: bool = False) -> str:
    """Shortens a text to `width` columns of a terminal. Chinese characters, emoji and the like take two of them.

    >>> clip("a long text", 8)
    'a long …'
    """
    from unicodedata import east_asian_width

    columns, fits = 0, 0
    for position, character in enumerate(text):
        columns += 2 if east_asian_width(character) in "WF" else 1
        if columns > width:
            cut = True
            break
        if columns <= width - 1:
            fits = position + 1
    if not cut:
        return text
    return text[:fits] + "…" if width > 0 else ""
