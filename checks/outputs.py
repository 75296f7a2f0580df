"""What a writer leaves: the same bytes for any number of threads, and nothing at all if it was not closed well."""

from __future__ import annotations

import gc
import io
import itertools
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyrecord

from checks.cases import ways
from checks.figures import Figure

__all__ = ["run"]

_OLD = b"what was there before"
_RECORDS = 3000
_THREADS = (0, 1, 2, 3, 8)


def run(short: bool) -> list[Figure]:
    """Writes the same records in many ways, and ends writers badly."""
    with tempfile.TemporaryDirectory() as folder:
        kinds = list(ways())
        return [_same_bytes(Path(folder), kinds, short), _ended_badly(Path(folder), kinds), _failing(kinds, short)]


def _same_bytes(folder: Path, kinds: list[tuple[str, str, dict[str, Any]]], short: bool) -> Figure:
    """The bytes depend on the records and the options only: not on threads, batches, or the kind of target."""
    figure = Figure("files written again, with other threads, batches and targets")
    records = [_record(number) for number in range(_RECORDS if short else 10 * _RECORDS)]
    for name, suffix, given in kinds:
        options = {**given, "chunk_bytes": 16_000} if "chunk_bytes" in given else given
        if options.get("pad_to_block_boundary"):
            options = {**options, "group_size": 1000}
        format, written = name.split("-")[0], set()
        for threads in _THREADS:
            path = folder / f"{figure.tried}{suffix}"
            with anyrecord.create(path, threads=threads, durable=False, **options) as out:
                _write(out, records, threads)
            figure.tried += 1
            written.add(path.read_bytes())
            path.unlink()
        memory = io.BytesIO()
        with anyrecord.create(memory, format=format, **options) as out:
            out.write_many(records)
        figure.tried += 1
        if len(written | {memory.getvalue()}) != 1:
            figure.violations.append(f"{name}: the bytes differ")
    return figure


def _record(number: int) -> bytes:
    """A few records are long: the thread that encodes one is overtaken by those that encode the next ones."""
    return b"record %d " % number * (1000 if number % 150 == 1 else number % 20)


def _write(out: Any, records: list[bytes], pieces: int) -> None:
    """Writes records one by one, or in batches of different sizes."""
    if pieces % 2 == 0:
        for record in records:
            out.write(record)
        return
    rest = iter(records)
    for size in itertools.cycle((1, 10 * pieces, 333)):
        batch = list(itertools.islice(rest, size))
        if not batch:
            return
        out.write_many(batch)


def _ended_badly(folder: Path, kinds: list[tuple[str, str, dict[str, Any]]]) -> Figure:
    """A writer that was not closed publishes nothing, and the old file stays."""
    figure = Figure("writers that were not closed well")

    def raises(path: Path, options: dict[str, Any]) -> None:
        with anyrecord.create(path, overwrite=True, **options) as out:
            out.write_many([b"new"] * 100)
            raise LookupError

    def drops(path: Path, options: dict[str, Any]) -> None:
        out = anyrecord.create(path, overwrite=True, **options)
        out.write_many([b"new"] * 100)
        del out
        gc.collect()

    def discards(path: Path, options: dict[str, Any]) -> None:
        out = anyrecord.create(path, overwrite=True, **options)
        out.write_many([b"new"] * 100)
        out.discard()

    def fails_in_its_records(path: Path, options: dict[str, Any]) -> None:
        def records() -> Iterator[bytes]:
            yield from [b"new"] * 100
            raise LookupError

        with anyrecord.create(path, overwrite=True, **options) as out:
            out.write_many(records())

    def closes_with_a_wrong_count(path: Path, options: dict[str, Any]) -> None:
        with anyrecord.create(path, overwrite=True, num_records=7, **options) as out:
            out.write(b"new")

    endings: dict[Callable[[Path, dict[str, Any]], None], type[BaseException] | None] = {
        raises: LookupError,
        drops: RuntimeWarning,
        discards: None,
        fails_in_its_records: LookupError,
        closes_with_a_wrong_count: ValueError,
    }
    for (name, suffix, options), (ending, expected) in itertools.product(kinds, endings.items()):
        path = folder / f"old{suffix}"
        path.write_bytes(_OLD)
        figure.tried += 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            raised = _raised_by(ending, path, options) or (caught[0].category if caught else None)
        if raised is not expected and not (raised and expected and issubclass(raised, expected)):
            figure.violations.append(f"{name}, {ending.__name__}: raised {_name(raised)} and not {_name(expected)}")
        if path.read_bytes() != _OLD:
            figure.violations.append(f"{name}, {ending.__name__}: the old file was replaced")
        if others := sorted(set(os.listdir(folder)) - {path.name}):
            figure.violations.append(f"{name}, {ending.__name__}: {others} are left")
            for other in others:
                (folder / other).unlink()
        path.unlink()
    return figure


def _name(kind: type[BaseException] | None) -> str:
    return kind.__name__ if kind else "nothing"


def _raised_by(act: Callable[..., None], *arguments: Any) -> type[Exception] | None:
    try:
        act(*arguments)
    except Exception as error:
        return type(error)
    return None


class _Failing(io.RawIOBase):
    """A file object whose write, flush or close fails from some call on, or writes only a part."""

    def __init__(self, method: str, patience: int) -> None:
        self.memory, self.method, self.patience, self.has_failed = io.BytesIO(), method, patience, False

    def _ask(self, method: str) -> None:
        if method == self.method:
            self.patience -= 1
            if self.patience < 0:
                self.has_failed = True
                raise OSError(5, "the disk is on fire")

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._ask("write")
        return self.memory.write(data)

    def flush(self) -> None:
        self._ask("flush")

    def tell(self) -> int:
        return self.memory.tell()

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._ask("seek")
        return self.memory.seek(offset, whence)


def _failing(kinds: list[tuple[str, str, dict[str, Any]]], short: bool) -> Figure:
    """A target that fails at any of its calls: an exception, at the latest from `close`."""
    figure = Figure("writes to targets that fail at one of their calls")
    for (name, _, options), method in itertools.product(kinds, ("write", "flush", "seek")):
        for patience in itertools.count():
            target = _Failing(method, patience)
            raised = None
            try:
                with anyrecord.create(target, format=name.split("-")[0], **options) as out:  # type: ignore[arg-type]
                    out.write_many([b"x" * 30] * 50)
            except OSError as error:
                raised = error
            target.method = "none"  # what the interpreter does with it later
            if not target.has_failed:
                break  # there are not so many calls
            figure.tried += 1
            if raised is None or raised.errno != 5:
                figure.violations.append(f"{name}: call {patience} of {method} failed, and nobody was told")
            if short and patience > 20:
                break
    return figure
