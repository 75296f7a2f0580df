"""Ctrl-C at every read and at every record: `KeyboardInterrupt` soon after, and the old file stays.

"Soon" is counted in reads and in records, not in seconds.
"""

from __future__ import annotations

import ctypes
import io
import itertools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyrecord

from checks.cases import ways
from checks.figures import Figure

__all__ = ["run"]

_RECORDS = [b"record %d " % number * 40 for number in range(400)]
_OLD = b"what was there before"
_READS_AFTER = 64
"""Reads that may follow the signal in the same call: those that were asked for together."""
_RECORDS_AFTER = 1
"""Records that may be asked for after the signal."""

_RECORDS_UNTIL_HEARD = 2048
"""Records that may be written after the signal if no Python code runs between them."""

_VERBS: dict[str, Callable[[Any, Path], object]] = {
    "open": lambda source, _: anyrecord.open(source),
    "list": lambda source, _: list(anyrecord.open(source, cache_bytes=0)),
    "single": lambda source, _: [anyrecord.open(source, cache_bytes=0)[i] for i in range(0, len(_RECORDS), 7)],
    "batches": lambda source, _: list(anyrecord.open(source, cache_bytes=0).batches(50)),
    "info": lambda source, _: anyrecord.info(source),
    "verify": lambda source, _: anyrecord.verify(source),
    "convert": lambda source, target: anyrecord.convert(anyrecord.open(source), target, overwrite=True),
}


def run(short: bool) -> list[Figure]:
    """Interrupts each verb at each of its reads, and writers at each of some records."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return [_reading(Path(folder), short), _writing(Path(folder), short), _without_python(Path(folder))]
    finally:
        signal.signal(signal.SIGINT, before)


class _Interrupts(io.RawIOBase):
    """A file object that sends Ctrl-C to this process in one of its reads."""

    def __init__(self, data: bytes, at: int) -> None:
        self.memory, self.at, self.reads = io.BytesIO(data), at, 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self.memory.seek(offset, whence)

    def tell(self) -> int:
        return self.memory.tell()

    def read(self, size: int = -1, /) -> bytes:
        self.reads += 1
        if self.reads == self.at + 1:
            signal.raise_signal(signal.SIGINT)
        return self.memory.read(size)


def _left(folder: Path, target: Path) -> list[str]:
    """What is wrong in the folder: only the old file may be there."""
    wrong = [] if target.read_bytes() == _OLD else ["the old file was replaced"]
    for name in sorted(set(os.listdir(folder)) - {target.name}):
        wrong.append(f"{name} is left")
        (folder / name).unlink()
    return wrong


def _reading(folder: Path, short: bool) -> Figure:
    figure = Figure("interrupts of a read")
    target = folder / "target.ffr"
    for name, _, options in ways():
        memory = io.BytesIO()
        if "chunk_bytes" in options:
            options = {**options, "chunk_bytes": 1000}
        with anyrecord.create(memory, format=name.split("-")[0], **options) as out:
            out.write_many(_RECORDS)
        for verb, act in _VERBS.items():
            target.write_bytes(_OLD)
            counted = _Interrupts(memory.getvalue(), -1)
            act(counted, target)
            target.write_bytes(_OLD)
            steps = 5 if short else 100
            for at in sorted({*range(min(counted.reads, steps)), *range(0, counted.reads, counted.reads // steps + 1)}):
                source = _Interrupts(memory.getvalue(), at)
                figure.tried += 1
                try:
                    act(source, target)
                    figure.violations.append(f"{name}, {verb}: the interrupt at read {at} was not heard")
                except KeyboardInterrupt:
                    pass
                if source.reads - at > _READS_AFTER:
                    figure.violations.append(f"{name}, {verb}: {source.reads - at} reads after the interrupt")
                wrong = _left(folder, target)
                figure.violations += [f"{name}, {verb}: {what} after an interrupt at read {at}" for what in wrong]
    target.unlink()
    return figure


def _writing(folder: Path, short: bool) -> Figure:
    figure = Figure("interrupts of a write")
    for name, suffix, options in ways():
        target = folder / f"target{suffix}"
        target.write_bytes(_OLD)
        if "chunk_bytes" in options:
            options = {**options, "chunk_bytes": 1000}
        for at in range(0, len(_RECORDS), 97 if short else 7):
            asked = 0

            def records(at: int = at) -> Iterator[bytes]:
                nonlocal asked
                for asked, record in enumerate(_RECORDS):
                    if asked == at:
                        signal.raise_signal(signal.SIGINT)
                    yield record

            figure.tried += 1
            try:
                with anyrecord.create(target, overwrite=True, **options) as out:
                    out.write_many(records())
                figure.violations.append(f"{name}: the interrupt at record {at} was not heard")
            except KeyboardInterrupt:
                pass
            if asked - at > _RECORDS_AFTER:
                figure.violations.append(f"{name}: {asked - at} records after the interrupt")
            figure.violations += [f"{name}: {what} after an interrupt at record {at}" for what in _left(folder, target)]
        target.unlink()
    return figure


def _without_python(folder: Path) -> Figure:
    """Nothing but the core can hear the signal: the records come from iterators that run no Python code."""
    figure = Figure("interrupts of a write without Python code")
    # Unlike `os.kill`, this function of the C library does not look for signals by itself.
    kill = ctypes.CDLL(None).kill
    for name, suffix, options in ways():
        target = folder / f"target{suffix}"
        target.write_bytes(_OLD)
        figure.tried += 1
        # `kill` returns 0, which `filter` leaves out.
        interrupt = filter(None, map(kill, [os.getpid()], [signal.SIGINT]))
        records = itertools.chain(itertools.repeat(b"x", 3000), interrupt, itertools.repeat(b"x", 30_000))
        written = -1
        try:
            with anyrecord.create(target, overwrite=True, durable=False, **options) as out:
                try:
                    out.write_many(records)
                finally:
                    written = out.num_records - 3000
            figure.violations.append(f"{name}: the interrupt was not heard")
        except KeyboardInterrupt:
            pass
        if written > _RECORDS_UNTIL_HEARD:
            figure.violations.append(f"{name}: {written} records after the interrupt")
        figure.violations += [f"{name}: {what} after an interrupt" for what in _left(folder, target)]
        target.unlink()
    return figure
