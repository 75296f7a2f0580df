"""How verbs tell what they have written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyrecord
from anyrecord.cli._units import bytes_text, plural

if TYPE_CHECKING:
    from anyrecord.cli._progress import Step

__all__ = ["compared_at_end", "skipped_json", "written_text"]


def written_text(
    verb: str, records: int, paths: Sequence[str], size: int | None = None, format: str | None = None
) -> str:
    """One line on the files that were written.

    >>> written_text("converted", 2000, ["a.ffr"], 4096, "ffrecord")
    'converted 2,000 records to a.ffr (ffrecord, 4.0 KiB)'
    >>> written_text("saved", 1, ["x/a.ffr", "x/b.ffr", "x/c.ffr"])
    'saved 1 record to 3 files, x/a.ffr to x/c.ffr'
    """
    where = "standard output" if not paths else paths[0]
    if len(paths) > 1:
        where = f"{plural(len(paths), 'file')}, {paths[0]} to {paths[-1]}"
    about = ", ".join(text for text in (format, None if size is None else bytes_text(size)) if text)
    return f"{verb} {plural(records, 'record')} to {where}" + (f" ({about})" if about else "")


def compared_at_end(step: Step | None) -> Callable[[int, int], None] | None:
    """The progress bar. When all is read, the new files are compared with it, and that has no progress of its own."""
    if step is None:
        return None

    def report(done: int, total: int) -> None:
        step(done, total)
        step.describe("comparing" if done == total else step.label)

    return report


def skipped_json(skipped: anyrecord.Skipped) -> dict[str, Any]:
    """A record that was left out or replaced."""
    return {"path": skipped.path, "record": skipped.record, "index": skipped.index, "error": skipped.error}
