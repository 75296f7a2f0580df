"""Objects of a store that are written: their names, and the journals of sets that are being published."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from anyrecord import _core
from anyrecord._calls import add_note
from anyrecord._locations import is_web, shown
from anyrecord._shard_names import set_name, shards_among
from anyrecord._trees import UrlTree

if TYPE_CHECKING:
    from anyrecord._targets import Destination

__all__ = [
    "existing_object_shards",
    "existing_objects",
    "journal_url",
    "publish_objects",
    "refuse_interrupted_objects",
    "refuse_web_set",
]

_OF_FOLDER = ".anyrecord-folder.publish"


def journal_url(url: str, *, is_folder: bool) -> str:
    """The journal of the shards of a URL, or of objects that appear together in the folder of a URL.

    >>> journal_url("s3://bucket/train.ffr", is_folder=False), journal_url("memory://", is_folder=True)
    ('s3://bucket/.train.ffr.publish', 'memory://.anyrecord-folder.publish')
    """
    folder, slash, name = url.rpartition("/")
    return folder + slash + (_OF_FOLDER if is_folder else f".{name}.publish")


def refuse_interrupted_objects(to: Destination, *, sharded: bool) -> None:
    """Raises PublishError if an object, or its shards, are being published, or if that was interrupted."""
    if is_web(to.name):
        return
    name = to.name.rpartition("/")[2]
    try:
        if sharded and (found := _read(journal_url(to.name, is_folder=False), to)):
            raise found[1]
        found = _read(journal_url(to.name, is_folder=True), to)
    except PermissionError as error:
        # One object can be written without permission to read. Without credentials, nothing can.
        if sharded or not (error.strerror or "").startswith("access is denied"):
            raise
        return
    if found and any((set_name(other) if sharded else other) == name for other in found[0]):
        raise found[1]


def _read(journal: str, to: Destination) -> tuple[list[str], BaseException] | None:
    try:
        return _core.read_object_journal(journal, list(to.storage))
    except OSError as error:
        error.filename = shown(to.name)  # the user knows nothing of journals
        raise


def refuse_web_set(url: str) -> None:
    """Raises ValueError for a set on a web server, which cannot make several files appear together."""
    if is_web(url):
        raise ValueError(
            f"{shown(url)!r} is on a web server, which cannot make several files appear together; write one file, or "
            "write the set to a local folder and upload it"
        )


def publish_objects(
    writers: Sequence[_core.Writer], journal: str, overwrite: bool, names: list[str], find_old: Callable[[], list[str]]
) -> None:
    """Publishes the objects of all writers together."""
    try:
        _core.publish_objects(writers, journal, overwrite, names, find_old)
    except KeyboardInterrupt as error:
        text = "if the set was being published, readers are refused: call anyrecord.recover, as their error says"
        add_note(error, text)
        raise


def existing_object_shards(to: Destination) -> list[str]:
    """The objects that `shard_paths(url, count)` names for any count, sorted by count and number."""
    folder, slash, name = to.name.rpartition("/")
    entries = UrlTree(to.name, to.storage).entries(folder + slash)
    return shards_among(name, ((entry.name, entry.path) for entry in entries))


def existing_objects(urls: list[str], to: Destination) -> list[str]:
    """Those of the objects of one folder that exist."""
    if not urls:
        return []
    folder, slash, _ = urls[0].rpartition("/")
    found = {entry.name for entry in UrlTree(urls[0], to.storage).entries(folder + slash)}
    return [url for url in urls if url.rpartition("/")[2] in found]


def refuse_existing(found: list[str], what: str) -> None:
    """Raises FileExistsError for objects that must not be replaced."""
    if found:
        text = f"{os.strerror(errno.EEXIST)}; pass overwrite=True to replace {what}"
        raise FileExistsError(errno.EEXIST, text, shown(found[0]))
