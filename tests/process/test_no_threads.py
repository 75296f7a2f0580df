"""Where the system starts no more threads, the calling thread does the work: right results, no panic."""

from __future__ import annotations

import ctypes
import errno
import io
import platform
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import anyrecord
import pytest
from anyrecord.compat.recordio import FileList, FileListScanner
from children import forked

RECORDS = [b"%d" % index * 100 for index in range(5000)]

# clone and clone3, by which threads are started.
SYSTEM_CALLS = {"x86_64": (56, 435), "aarch64": (220, 435)}


def refuse_threads() -> None:
    """From now on every start of a thread in this process fails, as where a limit of the system is reached."""

    def operation(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, value)

    load, is_equal, answer = 0x20, 0x15, 0x06
    refused, allowed = 0x50000 | errno.EAGAIN, 0x7FFF0000
    program = [operation(load, 0)]
    for number in SYSTEM_CALLS[platform.machine()]:
        program += [operation(is_equal, number, 0, 1), operation(answer, refused)]
    program.append(operation(answer, allowed))
    code = ctypes.create_string_buffer(b"".join(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    filter = Program(len(program), ctypes.addressof(code))
    system = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_filter = 38, 22
    assert system.prctl(no_new_privileges, 1, 0, 0, 0) == 0
    assert system.prctl(set_filter, 2, ctypes.byref(filter)) == 0
    with pytest.raises(RuntimeError, match="start new thread"):
        threading.Thread(target=print).start()


def write(path: Path) -> Path:
    with anyrecord.create(path, durable=False) as out:
        out.write_many(RECORDS)
    return path


def open_many(folder: Path) -> None:
    assert len(anyrecord.open([folder / "a.ffr"] * 20)) == 20 * len(RECORDS)


def batch_of_chunks(folder: Path) -> None:
    records = anyrecord.open(folder / "a.array_record", threads=8, cache_bytes=0)
    assert records[list(range(len(RECORDS)))] == RECORDS


def batch_past_the_page_cache(folder: Path) -> None:
    records = anyrecord.open(folder / "a.ffr", io="direct")
    assert records[list(range(len(RECORDS)))] == RECORDS


def iterate(folder: Path) -> None:
    assert list(anyrecord.open(folder / "a.array_record", threads=4, cache_bytes=0)) == RECORDS


def write_in_threads(folder: Path) -> None:
    for threads in (None, 2, 8):
        sink = io.BytesIO()
        with anyrecord.create(sink, format="array_record", codec="zstd", threads=threads) as out:
            out.write_many(RECORDS * 4)
        assert list(anyrecord.open(sink.getvalue())) == RECORDS * 4


def convert(folder: Path) -> None:
    anyrecord.convert(folder / "a.array_record", folder / "b.ffr", threads=4)
    assert list(anyrecord.open(folder / "b.ffr")) == RECORDS


def convert_many(folder: Path) -> None:
    anyrecord.convert([folder / "a.array_record"] * 3, folder / "c.array_record", shards=3, threads=4)
    assert len(anyrecord.open(f"{folder}/c.array_record@3")) == 3 * len(RECORDS)


def verify(folder: Path) -> None:
    assert anyrecord.verify(folder / "a.array_record").records == len(RECORDS)


def scan_ahead(folder: Path) -> None:
    with FileListScanner(FileList([str(folder / "a.recordio")] * 2), 4990, 20) as scanner:
        assert list(scanner) == [*RECORDS[4990:], *RECORDS[:10]]
        assert scanner.error() is None


WAYS: list[Callable[[Path], None]] = [
    open_many,
    batch_of_chunks,
    batch_past_the_page_cache,
    iterate,
    write_in_threads,
    convert,
    convert_many,
    verify,
    scan_ahead,
]


@pytest.mark.filterwarnings("ignore:.*read through the page cache")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_without_threads_everything_is_done_by_the_caller(tmp_path: Path, way: Callable[[Path], None]) -> None:
    for suffix in (".ffr", ".array_record", ".recordio"):
        write(tmp_path / f"a{suffix}")

    def act() -> None:
        refuse_threads()
        way(tmp_path)

    forked(act)
