"""What a name of a file is about: a local path, or a URL."""

from __future__ import annotations

import os
import re
from typing import TypeAlias

from anyrecord import _core

__all__ = [
    "SCHEMES",
    "StrPath",
    "file_name",
    "is_url",
    "is_web",
    "local_path",
    "missing_slash_hint",
    "redacted",
    "refuse_mangled_url",
    "refuse_url",
    "same_file",
    "scheme_of",
    "shown",
    "split_query",
    "text_of",
]

StrPath: TypeAlias = str | os.PathLike[str]
"""The name of a file or an object: a `str`, which can be a pattern, or a path object, which is one file or folder."""

# A scheme has at least two characters, because "C:" is a drive on Windows. The core has the same rule.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_URL_IN_TEXT = re.compile(rf"{_URL.pattern}[^\s'\"<>]+")
# `pathlib` turns "gs://bucket/x" into "gs:/bucket/x", or into "gs:\bucket\x" on Windows.
_MANGLED_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):[/\\]+")
_WEB = re.compile(r"https?://", re.IGNORECASE)
_QUERY = re.compile(r"[?#]")
_HOST = re.compile(r"\[[^]]*\](:[0-9]*)?|[^:]*(:[0-9]*)?")

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https", "file", "memory")
"""The schemes that we have. The core has the same."""
_WITHOUT_QUERY = frozenset({"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "memory", "file"})
"""The schemes whose URLs have no query: a question mark is part of a name, or of a pattern."""


def is_url(text: str) -> bool:
    """Whether a text is a URL, be it of a scheme that we have or not.

    >>> is_url("s3://bucket/train.ffr"), is_url("hdfs://host/train.ffr"), is_url("C://train.ffr"), is_url("s3:/x")
    (True, True, False, False)
    """
    return _URL.match(text) is not None


def is_web(text: str) -> bool:
    """Whether a text is the URL of a web server. It can have a query, and special characters in it are quoted."""
    return _WEB.match(text) is not None


def scheme_of(text: str) -> str | None:
    """The scheme of a URL, in lower case. None for a local path. ValueError for a scheme that we do not have.

    >>> scheme_of("S3://bucket/train.ffr"), scheme_of("data/train.ffr"), scheme_of("C:/data/train.ffr")
    ('s3', None, None)
    """
    found = _URL.match(text)
    if found is None:
        return None
    if found[1].lower() not in SCHEMES:
        text = f'the scheme "{found[1]}" of "{shown(text)}" is not supported; schemes: {", ".join(SCHEMES)}'
        raise ValueError(text)
    return _core.check_url(shown(text))


def split_query(text: str) -> tuple[str, str]:
    """The URL of a web server without its query, and the query. Other names have none.

    >>> split_query("https://host/a.ffr?key=1"), split_query("s3://bucket/a?.ffr")
    (('https://host/a.ffr', '?key=1'), ('s3://bucket/a?.ffr', ''))
    """
    match = _QUERY.search(text) if is_web(text) else None
    return (text, "") if match is None else (text[: match.start()], text[match.start() :])


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
        raise ValueError(f"{shown(url)!r} is not the URL of a local file; write file:///folder/name")
    return unquote(f"/{path}")


def shown(text: str) -> str:
    """A URL without its secrets, for error messages: without a user, a password and a query.

    >>> shown("https://me:secret@host/a.ffr?signature=secret"), shown("s3://bucket/a?.ffr")
    ('https://host/a.ffr', 's3://bucket/a?.ffr')
    """
    match = _URL.match(text)
    if match is None:
        return text
    given = rest = text[match.end() :]
    has_query = match[1].lower() not in _WITHOUT_QUERY
    if has_query:
        rest = _QUERY.split(rest, maxsplit=1)[0]
    host, slash, path = rest.partition("/")
    user = host.rpartition("@")[0]
    if not user and "@" in given and not _HOST.fullmatch(host):
        # What looks like a port is no number: it is the beginning of a password with a slash or a question mark in it.
        rest = given.rpartition("@")[2]
        host, slash, path = (_QUERY.split(rest, maxsplit=1)[0] if has_query else rest).partition("/")
    # In abfss://container@account.dfs.core.windows.net, the name before the @ is no secret. A password has a colon.
    elif has_query or ":" in user:
        host = host.rpartition("@")[2]
    return f"{match[0]}{host}{slash}{path}"


def redacted(text: str) -> str:
    """A message without the secrets of the URLs in it.

    >>> redacted("403, url='https://me:secret@host/a.ffr?signature=secret'")
    "403, url='https://host/a.ffr'"
    """
    return _URL_IN_TEXT.sub(lambda match: shown(match[0]), text)


def file_name(path: str) -> str:
    """The last part of a path or a URL.

    >>> file_name("data/train.ffr"), file_name("s3://bucket/train.ffr"), file_name("https://host/train.ffr?key=1")
    ('train.ffr', 'train.ffr', 'train.ffr')
    """
    return shown(path).rpartition("/")[2] if is_url(path) else os.path.basename(path)


def same_file(path: str) -> str:
    """What is equal for two spellings of one path. A URL has only one."""
    return path if is_url(path) else os.path.normpath(path)


def refuse_url(text: str) -> None:
    """Raises ValueError if `text` is a URL, except `file://`, where only a local path is possible.

    >>> refuse_url("data/train.ffr")
    >>> refuse_url("C:/data/train.ffr")
    >>> refuse_url("gs://bucket/train.ffr")
    Traceback (most recent call last):
    ValueError: 'gs://bucket/train.ffr' is a URL, but here only a local path is possible
    """
    match = _URL.match(text)
    if match is not None and match[1].lower() != "file":
        raise ValueError(f"{shown(text)!r} is a URL, but here only a local path is possible")


def refuse_mangled_url(path: os.PathLike[str]) -> None:
    """Raises ValueError if `path` was made from a URL: `pathlib` drops one of its slashes.

    >>> from pathlib import Path
    >>> refuse_mangled_url(Path("data/train.ffr"))
    >>> refuse_mangled_url(Path("gs://bucket/train.ffr"))
    Traceback (most recent call last):
    ValueError: 'gs:/bucket/train.ffr' looks like a gs:// URL that a path object has changed; pass a URL as a str, ...
    """
    text = os.fspath(path)
    mended = _mended(text) if isinstance(text, str) else None
    if mended is not None:
        scheme, slashes, _ = mended.partition("://")
        raise ValueError(
            f"{shown(mended).replace(slashes, ':/', 1)!r} looks like a {scheme}:// URL that a path object has changed; "
            "pass a URL as a str, and a local path of that name as an absolute path"
        )


def missing_slash_hint(text: str) -> str:
    """If a text would be a URL of a scheme that we have with one more slash, a hint that says so. Else "".

    >>> missing_slash_hint("s3:/bucket/train.ffr"), missing_slash_hint("file:/data/train.ffr")
    ("a URL has two slashes: write 's3://bucket/train.ffr'", "a URL has two slashes: write 'file:///data/train.ffr'")
    >>> missing_slash_hint("data:/train.ffr"), missing_slash_hint("C:/train.ffr")
    ('', '')
    """
    mended = _mended(text)
    if mended is None:
        return ""
    try:
        scheme = scheme_of(mended)
    except ValueError:  # a local folder with a colon in its name
        return ""
    url = shown(mended).replace("://", ":///", 1) if scheme == "file" else shown(mended)
    return f"a URL has two slashes: write {url!r}"


def _mended(text: str) -> str | None:
    """The URL that a text was before it lost a slash. None if it has not lost one."""
    match = None if is_url(text) else _MANGLED_URL.match(text)
    return None if match is None else f"{match[1]}://{text[match.end() :]}"
