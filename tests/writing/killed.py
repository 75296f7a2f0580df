"""Processes that are killed while they write, and processes that are alive as long as a test wants."""

from __future__ import annotations

import os
import select
import signal
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import anyrecord
from children import LIMIT_SECONDS

__all__ = ["die", "killed", "left_behind", "living", "prefix"]


def die() -> NoReturn:
    """Ends this process as a kill does: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process does nothing more")


def killed(act: Callable[[], object]) -> None:
    """Runs `act` in a forked child, which is killed where `act` calls `die`, or at its end."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            die()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def left_behind(path: Path | str, records: list[bytes], **keywords: object) -> None:
    """A writer that is killed after it has written these records, as far as they do not wait in its memory."""

    def write() -> None:
        warnings.simplefilter("ignore")  # others were killed before
        out = anyrecord.create(path, durable=False, **keywords)  # type: ignore[arg-type]
        out.write_many(records)
        die()

    killed(write)


@contextmanager
def living(act: Callable[[Callable[[], None]], object]) -> Iterator[None]:
    """Runs `act` in a forked child, which waits where `act` calls its argument until the block ends."""
    ready, tells = os.pipe()
    waits, go_on = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        os.close(go_on)

        def wait() -> None:
            os.write(tells, b"x")
            os.read(waits, 1)

        code = 1
        try:
            act(wait)
            code = 0
        finally:
            os._exit(code)
    os.close(tells)
    os.close(waits)
    try:
        assert select.select([ready], [], [], LIMIT_SECONDS)[0], "the child hung"
        assert os.read(ready, 1) == b"x", "the child failed before it waited"
        yield
    finally:
        os.close(go_on)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(ready)
    assert code == 0


def prefix(path: Path | str, format: str) -> list[bytes]:
    """The records at the beginning of an unfinished file, up to where it cannot be read."""
    found: list[bytes] = []
    if format == "ffrecord":
        return _samples(Path(path).read_bytes())

    def keep(record: bytes) -> None:
        found.append(record)

    # Without its footer, a file is not an ArrayRecord file, but still a Riegeli file.
    source_format = "riegeli" if format == "array_record" else format
    with suppress(anyrecord.RecordError):
        anyrecord.convert(path, os.devnull, format="tfrecord", source_format=source_format, map=keep, overwrite=True)
    return found


def _samples(file: bytes) -> list[bytes]:
    count = int.from_bytes(file[4:12], "little")
    checksums = [int.from_bytes(file[at : at + 4], "little") for at in range(12, 12 + 4 * count, 4)]
    offsets = [int.from_bytes(file[at : at + 8], "little") for at in range(12 + 4 * count, 12 + 12 * count, 8)]
    written = offsets.index(0) if 0 in offsets else count
    found: list[bytes] = []
    for number in range(written):
        rest = file[offsets[number] :]
        # The end of the last one is not stored: it is where the checksum fits.
        size = offsets[number + 1] - offsets[number] if number + 1 < written else _fitting(rest, checksums[number])
        if size is None or zlib.crc32(rest[:size]) != checksums[number]:
            return found
        found.append(rest[:size])
    return found


def _fitting(rest: bytes, checksum: int) -> int | None:
    """How many bytes have this checksum."""
    running = 0
    for size in range(len(rest)):
        if running == checksum:
            return size
        running = zlib.crc32(rest[size : size + 1], running)
    return len(rest) if running == checksum else None
