"""What `storage=` can be: a dict of options, an obstore store, or an fsspec file system.

An obstore store of a cloud or a web server is taken apart: its URL and its options go to the core, which reads. So is a
local one. Other objects are asked for their bytes, with one call for many ranges. Neither library is imported here.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from operator import index
from typing import Any, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias

from anyrecord._locations import StrPath, is_url, shown, text_of
from anyrecord._store_files import FsspecFiles, ObstoreFiles, StoreFiles

__all__ = ["Root", "Storage", "Stores", "resolve"]

Storage: TypeAlias = Mapping[str, Any] | Any
"""What `storage=` takes: a dict, an obstore store or an fsspec file system."""

Pairs: TypeAlias = tuple[tuple[str, str], ...]


class Root(NamedTuple):
    """Where paths begin: a URL, or a local folder. It comes from a store."""

    base: str
    """Ends in a slash."""

    def path(self, path: StrPath) -> str:
        """A path that is relative to the store, as a URL or a local path."""
        text = text_of(path)
        is_local = not is_url(self.base)
        # What is quoted in the address of a web server means the same.
        parts = re.split(r"[/\\]" if is_local else "/", re.sub("%2e", ".", text, flags=re.IGNORECASE))
        is_whole = is_url(text) or (os.path.isabs(text) and is_local)
        if ".." in parts or (is_whole and not text.startswith(self.base)):
            raise ValueError(f"{shown(text)!r} is not in the store of storage=, which is {shown(self.base)!r}")
        if is_whole:
            return text
        front, question, query = self.base.partition("?") if self.base.startswith("http") else (self.base, "", "")
        return f"{front}{text.lstrip('/')}{question}{query}"


class Stores(NamedTuple):
    """What `storage=` means."""

    options: Pairs = ()
    """For the core."""
    root: Root | None = None
    store: StoreFiles | None = None


def resolve(storage: Storage | None) -> Stores:
    """Finds out what was passed as `storage=`.

    >>> resolve({"region": "eu-west-1", "allow_http": True, "max_requests": 8}).options
    (('allow_http', 'true'), ('max_requests', '8'), ('region', 'eu-west-1'))
    """
    if storage is None:
        return Stores()
    if isinstance(storage, Mapping):
        for name in storage:
            if str(name).lower() in _BUCKET_OPTIONS:
                raise ValueError(f"storage option {name!r} is not valid: the URL names the bucket")
        return Stores(_pairs(storage))
    bases = {(base.__module__.partition(".")[0], base.__name__) for base in type(storage).__mro__}
    names = {name for module, name in bases if module == "obstore"}
    if ("fsspec", "AbstractFileSystem") in bases:
        return _of_file_system(storage)
    if names and _has_headers(storage):
        return Stores(store=ObstoreFiles(storage))
    if names & {"S3Store", "GCSStore", "AzureStore"} and storage.credential_provider is None:
        return _of_cloud(storage, names)
    if "HTTPStore" in names:
        base, _, query = storage.url.partition("?")
        url = f"{base.rstrip('/')}/" + (f"?{query}" if query else "")
        return Stores(_client_pairs(storage), Root(url))
    if "LocalStore" in names:
        return Stores(root=Root(os.path.join(storage.prefix or "/", "")))
    if names:
        return Stores(store=ObstoreFiles(storage))
    raise TypeError(
        f"storage= takes a dict of options, an obstore store or an fsspec file system, not {type(storage).__name__}"
    )


def _pairs(options: Mapping[str, Any]) -> Pairs:
    # Sorted, so that equal options are equal: obstore gives them in any order.
    given = ((str(name), _option_text(name, value)) for name, value in options.items() if value is not None)
    return tuple(sorted(given))


def _option_text(name: object, value: object) -> str:
    if isinstance(value, str):
        return str(value)  # also of a subclass, such as an enum
    if hasattr(value, "total_seconds"):  # a `timedelta`
        return f"{_digits(value.total_seconds())}s"
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool":  # numpy has a bool of its own
        return "true" if value else "false"
    with suppress(TypeError, ValueError, OverflowError):
        if isinstance(value, SupportsIndex | SupportsFloat) and math.isfinite(value):
            return str(index(value)) if isinstance(value, SupportsIndex) else _digits(float(value))
    raise TypeError(f"storage option {name!r} must be a str, a number or a bool, not {type(value).__name__}")


def _digits(number: float) -> str:
    """A number without an exponent, and without a fraction if it is whole.

    >>> _digits(3.0), _digits(1e-06), _digits(0.25)
    ('3', '0.000001', '0.25')
    """
    from decimal import Decimal  # imported here because few programs need it

    text = f"{Decimal(repr(number)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _of_cloud(store: Any, names: set[str]) -> Stores:
    options = dict(store.config)
    scheme = "s3" if "S3Store" in names else "gs" if "GCSStore" in names else "az"
    bucket = next(options.pop(key) for key in list(options) if key in _BUCKET_OPTIONS)
    prefix = f"{store.prefix.strip('/')}/" if store.prefix else ""
    return Stores(_pairs(options) + _client_pairs(store), Root(f"{scheme}://{bucket}/{prefix}"))


_BUCKET_OPTIONS = frozenset(
    {
        *("bucket", "bucket_name", "aws_bucket", "aws_bucket_name", "google_bucket", "google_bucket_name"),
        *("container", "container_name", "azure_container", "azure_container_name"),
    }
)
"""The options that name what the URL names already."""


def _has_headers(store: Any) -> bool:
    """Whether a store adds headers of its own to each request. The core has no option for them."""
    return bool(dict(getattr(store, "client_options", None) or {}).get("default_headers"))


def _client_pairs(store: Any) -> Pairs:
    client = dict(store.client_options or {})
    client.pop("default_headers", None)  # empty, see `_has_headers`
    retry = dict(store.retry_config or {})
    backoff = dict(retry.pop("backoff", None) or {})
    backoff.pop("base", None)
    return _pairs(client) + _pairs(retry) + _pairs(backoff)


def _of_file_system(fs: Any) -> Stores:
    protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    if protocol in ("file", "local"):
        return Stores()
    return Stores(store=FsspecFiles(fs))
