"""One open file and many readers: nobody moves it between another's seek and read."""

from __future__ import annotations

import io
from typing import Any

from anyrecord.compat.recordio import load_index, new_scanner, new_writer
from anyrecord.compat.recordio.shared_file import SharedFile, _locks


class Watched(io.RawIOBase):
    """A file that can be read only by who holds its lock."""

    def __init__(self, contents: bytes) -> None:
        self.inner = io.BytesIO(contents)

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        assert _locks[self].locked()
        return self.inner.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        assert _locks[self].locked()
        return self.inner.read(size)


def test_each_reader_has_a_position_of_its_own() -> None:
    file: Any = Watched(b"0123456789")
    one, two = SharedFile(file), SharedFile(file)
    assert (one.seek(2), two.seek(-3, 2), one.seek(1, 1)) == (2, 7, 3)
    assert (one.read(2), two.read(2), one.read(1), two.read()) == (b"34", b"78", b"5", b"9")
    assert (one.tell(), two.tell()) == (6, 10)


def test_readers_of_one_file_share_a_lock_and_those_of_others_do_not() -> None:
    file: Any = Watched(b"")
    other: Any = Watched(b"")
    assert SharedFile(file)._lock is SharedFile(file)._lock is not SharedFile(other)._lock


def test_scanners_and_indexes_take_turns() -> None:
    contents = io.BytesIO()
    with new_writer(contents, 4) as writer:
        writer.write(b"one")
        writer.write(b"two")
    file: Any = Watched(contents.getvalue())
    for index in (load_index(file), None):
        scanner = new_scanner(file, index, 1, 1)
        assert scanner.scan()
        assert scanner.record() == b"two"
