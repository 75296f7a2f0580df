"""What a name of a file is about: a local path, or a URL."""

from __future__ import annotations

import os
import re
from typing import TypeAlias

from anyrecord import _core

__all__ = [
    "StrPath",
    "file_name",
    "local_path",
    "refuse_mangled_url",
    "refuse_url",
    "same_file",
    "scheme_of",
    "shown",
    "text_of",
]

StrPath: TypeAlias = str | os.PathLike[str]
"""The name of a file or an object: a `str`, which can be a pattern, or a path object, which is one file or folder."""

# A scheme has at least two characters, because "C:" is a drive on Windows.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# `pathlib` turns "gs://bucket/x" into "gs:/bucket/x", or into "gs:\bucket\x" on Windows.
_MANGLED_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):[/\\]+")

_BUCKETS = frozenset({"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "memory", "file"})
"""The schemes whose URLs have no query: a question mark is part of a name, or of a pattern."""


def scheme_of(text: str) -> str | None:
    """The scheme of a URL, in lower case. None for a local path. ValueError for a scheme that we do not have.

    >>> scheme_of("S3://bucket/train.ffr"), scheme_of("data/train.ffr"), scheme_of("C:/data/train.ffr")
    ('s3', None, None)
    """
    return _core.check_url(shown(text)) if _URL.match(text) else None


def text_of(path: StrPath) -> str:
    """A path as text. A `file://` URL becomes a local path. ValueError for a URL that `pathlib` has changed.

    >>> from pathlib import Path
    >>> text_of(Path("data/train.ffr")), text_of("file:///data/train%201.ffr"), text_of("gs://bucket/train.ffr")
    ('data/train.ffr', '/data/train 1.ffr', 'gs://bucket/train.ffr')
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError("pass the path as a str or a PathLike of str, not of bytes")
    scheme = scheme_of(text)
    if scheme is None and not isinstance(path, str):
        refuse_mangled_url(path)
    return local_path(text) if scheme == "file" else text


def local_path(url: str) -> str:
    """The path of a `file://` URL.

    >>> local_path("file://localhost/data/train%201.ffr")
    '/data/train 1.ffr'
    """
    from urllib.parse import unquote  # imported here because few programs need it

    host, slash, path = url.partition("://")[2].partition("/")
    if host not in ("", "localhost") or not slash:
        raise ValueError(f"{url!r} is not the URL of a local file; write file:///folder/name")
    return unquote(f"/{path}")


def shown(text: str) -> str:
    """A URL without its secrets, for error messages: without a user, a password and a query.

    >>> shown("https://me:secret@host/a.ffr?signature=secret"), shown("s3://bucket/a?.ffr")
    ('https://host/a.ffr', 's3://bucket/a?.ffr')
    """
    match = _URL.match(text)
    if match is None:
        return text
    rest = text[match.end() :]
    is_bucket = match[1].lower() in _BUCKETS
    if not is_bucket:
        rest = rest.partition("?")[0].partition("#")[0]
    host, slash, path = rest.partition("/")
    # In abfss://container@account.dfs.core.windows.net, the name before the @ is no secret. A password has a colon.
    if not is_bucket or ":" in host.rpartition("@")[0]:
        host = host.rpartition("@")[2]
    return f"{match[0]}{host}{slash}{path}"


def file_name(path: str) -> str:
    """The last part of a path or a URL.

    >>> file_name("data/train.ffr"), file_name("s3://bucket/train.ffr"), file_name("https://host/train.ffr?key=1")
    ('train.ffr', 'train.ffr', 'train.ffr')
    """
    return shown(path).rpartition("/")[2] if _URL.match(path) else os.path.basename(path)


def same_file(path: str) -> str:
    """What is equal for two spellings of one path. A URL has only one."""
    return path if _URL.match(path) else os.path.normpath(path)


def refuse_url(text: str) -> None:
    """Raises ValueError if `text` is a URL. Nothing writes to URLs.

    >>> refuse_url("data/train.ffr")
    >>> refuse_url("C:/data/train.ffr")
    >>> refuse_url("gs://bucket/train.ffr")
    Traceback (most recent call last):
    ValueError: 'gs://bucket/train.ffr' is a URL: writing to gs:// is not supported yet; write to a local path, and ...
    """
    scheme = scheme_of(text)
    if scheme is not None:
        raise ValueError(
            f"{shown(text)!r} is a URL: writing to {scheme}:// is not supported yet; "
            "write to a local path, and upload the file"
        )


def refuse_mangled_url(path: os.PathLike[str]) -> None:
    """Raises ValueError if `path` was made from a URL: `pathlib` drops one of its slashes.

    >>> from pathlib import Path
    >>> refuse_mangled_url(Path("data/train.ffr"))
    >>> refuse_mangled_url(Path("gs://bucket/train.ffr"))
    Traceback (most recent call last):
    ValueError: 'gs:/bucket/train.ffr' looks like a gs:// URL that a path object has changed; pass a URL as a str, ...
    """
    text = os.fspath(path)
    match = _MANGLED_URL.match(text) if isinstance(text, str) and not _URL.match(text) else None
    if match is not None:
        raise ValueError(
            f"{text!r} looks like a {match[1]}:// URL that a path object has changed; pass a URL as a str, "
            "and a local path of that name as an absolute path"
        )
