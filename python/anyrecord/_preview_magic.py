"""Kinds that are named by their first bytes, and not looked into."""

from __future__ import annotations

from typing import Any, Final

from anyrecord._listing import MAGIC

__all__ = ["by_magic"]

_MAGIC: Final[tuple[tuple[bytes, str, str], ...]] = (
    (MAGIC, "folder_listing", "the names of a packed folder"),
    (b"\x1f\x8b\x08", "gzip", "compressed by gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd", "compressed by zstd"),
    (b"BZh", "bzip2", "compressed by bzip2"),
    (b"\xfd7zXZ\x00", "xz", "compressed by xz"),
    (b"\x04\x22\x4d\x18", "lz4", "compressed by lz4"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy", "compressed by snappy"),
    (b"7z\xbc\xaf\x27\x1c", "7z", "an archive"),
    (b"PAR1", "parquet", "a Parquet file"),
    (b"ARROW1\x00\x00", "arrow", "an Arrow file"),
    (b"\x89HDF\r\n\x1a\n", "hdf5", "an HDF5 file"),
    (b"%PDF-", "pdf", "a PDF document"),
    (b"fLaC\x00", "flac", "sound"),
    (b"OggS\x00", "ogg", "sound or video"),
    (b"ID3\x02", "mp3", "sound"),
    (b"ID3\x03", "mp3", "sound"),
    (b"ID3\x04", "mp3", "sound"),
    (b"\x1a\x45\xdf\xa3", "matroska", "video (Matroska or WebM)"),
    (b"II*\x00", "tiff", "a picture"),
    (b"MM\x00*", "tiff", "a picture"),
    (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "jxl", "a picture"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "jp2", "a picture"),
    (b"SQLite format 3\x00", "sqlite", "a database"),
    (b"\x7fELF", "elf", "a program"),
)
_BRANDS: Final = {b"avif": "avif", b"avis": "avif", b"heic": "heic", b"heix": "heic", b"mif1": "heic"}


def by_magic(data: memoryview, size: int) -> tuple[str, str, dict[str, Any]] | None:
    """Names a kind by its first bytes."""
    head = bytes(data[:512])
    for magic, kind, summary in _MAGIC:
        if head.startswith(magic) and _is_more_than_magic(kind, data, size):
            return kind, summary, {}
    if head[:4] == b"RIFF" and head[8:12] in (b"WAVE", b"AVI "):
        return ("wav", "sound", {}) if head[8:12] == b"WAVE" else ("avi", "video", {})
    if head[4:8] == b"ftyp" and 8 <= int.from_bytes(head[:4], "big") <= 1024:
        kind = _BRANDS.get(head[8:12], "mp4")
        return kind, "video or sound" if kind == "mp4" else "a picture", {}
    if head[257:262] == b"ustar":
        return "tar", "an archive", {}
    return None


def _is_more_than_magic(kind: str, data: memoryview, size: int) -> bool:
    """Looks at a little more where the first bytes are few, or could begin a text."""
    if kind == "bzip2":
        return (
            bytes(data[3:4]) in (b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9")
            and bytes(data[4:10]) == b"1AY&SY"
        )
    if kind == "gzip":
        return len(data) >= 10 and data[3] & 0xE0 == 0
    if kind == "parquet":
        return bytes(data[4:5]) == b"\x15" and (
            len(data) < size or bytes(data[-4:]) == b"PAR1"
        )  # the first page's header follows
    return True
