"""`anyrecord index`: writes index files next to the data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import anyrecord
from anyrecord._locations import is_url
from anyrecord._options import open_options
from anyrecord.cli import _errors
from anyrecord.cli._inputs import Reading, reading_options, sources_argument
from anyrecord.cli._output import Output
from anyrecord.cli._units import bytes_text, plural
from anyrecord.cli._verb import verb
from anyrecord.cli.verify import GOES_ON, files_of

__all__ = ["command"]

_STYLES = {"written": "green", "kept": "green", "not needed": "dim", "failed": "bold red"}


@verb(
    "index",
    examples=[
        "anyrecord index train.tfrecord",
        "anyrecord index 'logs/*.recordio'",
        "anyrecord index s3://bucket/train.tfrecord --storage region=eu-west-1",
    ],
)
@sources_argument
@reading_options("format", "storage")
def command(out: Output, sources: tuple[str, ...], reading: Reading) -> int:
    """Write index files, so that files without a table open fast.

    RecordIO and TFRecord files have no table, so opening one reads the headers of all its records. The index of
    train.tfrecord is the hidden file .train.tfrecord.index beside it. An index that fits is kept. Formats with a table,
    and compressed TFRecord files, need no index. You can always delete an index.
    """
    if "-" in sources:
        raise ValueError("an index is written beside a file; - is not possible here")
    made: list[_Indexed] = []
    with out.progress("indexing") as step:
        for one in _indexed(sources, reading, step):
            made.append(one)
            if not out.as_json:
                _show(out, one)
    if out.as_json:
        out.write_json({"ok": all(one.error is None for one in made), "files": [one.as_json() for one in made]})
    elif len(made) > 1:
        counts = ", ".join(
            f"{count:,} {status}" for status in _STYLES if (count := sum(one.status == status for one in made))
        )
        out.line((f"{plural(len(made), 'file')}: {counts}", "bold"))
    return max((_errors.exit_code(one.error) for one in made if one.error is not None), default=0)


class _Indexed(NamedTuple):
    """One file, or a source that is none."""

    path: str
    index_path: str | None = None
    is_new: bool = False
    error: BaseException | None = None

    @property
    def status(self) -> str:
        if self.error is not None:
            return "failed"
        return "not needed" if self.index_path is None else "written" if self.is_new else "kept"

    def as_json(self) -> dict[str, Any]:
        error = None if self.error is None else _errors.described(self.error)
        return {"path": self.path, "status": self.status, "index": self.index_path, "error": error}


def _indexed(sources: Sequence[str], reading: Reading, step: Any) -> Iterator[_Indexed]:
    files = [found for source in sources for found in files_of(source, open_options(**reading.keywords))]
    total, done = sum(size for _, _, size in files), 0
    for path, file, size in files:
        if isinstance(file, BaseException):
            yield _Indexed(path, error=file)
            continue
        if step is not None:
            step(done, total)
        before = _state(_index_path(file.path))
        try:
            # A list has no request to find out whether a URL is a folder.
            index = next(iter(anyrecord.build_index([file.path], **reading.keywords)), None)
            is_new = index is not None and (is_url(index) or _state(index) != before)
            yield _Indexed(path, index, is_new)
        except GOES_ON as error:
            yield _Indexed(path, error=error)
        done += size


def _index_path(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.index")


def _state(path: str) -> tuple[int, int, int] | None:
    """What is different after a file was replaced."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size


def _show(out: Output, one: _Indexed) -> None:
    where = "" if one.index_path is None else f"  {one.index_path}, {_size(one.index_path)}"
    out.line((f"{one.status:<10}", _STYLES[one.status]), "  ", one.path, (where, "dim"))
    if one.error is not None:
        out.paragraph("", f"{type(one.error).__name__}: {_errors.message(one.error)}", indent=2)


def _size(index: str) -> str:
    return "in the store" if is_url(index) else bytes_text(os.path.getsize(index))
