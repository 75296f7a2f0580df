"""Writing to file objects, pipes and devices: every byte in order, and their errors as they are."""

from __future__ import annotations

import io
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ClosedError, FormatError
from children import LIMIT_SECONDS
from conformance.formats import FORMATS

from writing.folders import names

NO_END = [format.suffix for format in FORMATS if format.empty_file_is_valid]
"""Formats whose files may end after any record, or before the first."""

RECORDS = [b"%d:" % number * (number % 97) for number in range(3000)]


class Sink:
    """The least that can be written to; `answer` makes what `write` returns from how much it was given."""

    def __init__(self, answer: Callable[[int], object] = lambda given: given) -> None:
        self.answer = answer
        self.taken = bytearray()
        self.calls = 0

    def write(self, data: bytes) -> object:
        self.calls += 1
        answer = self.answer(len(data))
        self.taken += data[:answer] if isinstance(answer, int) else data
        return answer


def create(sink: Any, suffix: str = ".ffr", **keywords: Any) -> anyrecord.Writer:
    return anyrecord.create(sink, format=format_of(suffix), **keywords)


def format_of(suffix: str) -> str:
    return {".ffr": "ffrecord"}.get(suffix, suffix[1:])


def whole(suffix: str, tmp_path: Path) -> bytes:
    """The same records as a file."""
    path = tmp_path / f"whole{suffix}"
    with anyrecord.create(path, overwrite=True) as out:
        out.write_many(RECORDS)
    return path.read_bytes()


ANSWERS: dict[str, Callable[[int], object]] = {
    "all": lambda given: given,
    "nothing said": lambda given: None,
    "seven at most": lambda given: min(given, 7),
    "half": lambda given: (given + 1) // 2,
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("num_records", [None, len(RECORDS)])
def test_a_sink_gets_every_byte_once_and_in_order(
    tmp_path: Path, suffix: str, answer: Callable[[int], object], num_records: int | None
) -> None:
    sink = Sink(answer)
    with create(sink, suffix, num_records=num_records) as out:
        out.write_many(RECORDS)
    assert bytes(sink.taken) == whole(suffix, tmp_path)


@pytest.mark.parametrize("num_records", [None, len(RECORDS)])
def test_a_sink_that_can_seek_is_written_from_where_it_stands(
    tmp_path: Path, suffix: str, num_records: int | None
) -> None:
    sink = io.BytesIO(b"before")
    sink.seek(0, os.SEEK_END)
    with create(sink, suffix, num_records=num_records) as out:
        out.write_many(RECORDS)
    assert sink.getvalue() == b"before" + whole(suffix, tmp_path)
    assert sink.tell() == len(sink.getvalue())
    assert not sink.closed, "whoever opened it closes it"


@pytest.mark.parametrize("buffering", [0, -1])
def test_an_open_file_has_everything_at_close(tmp_path: Path, suffix: str, buffering: int) -> None:
    path = tmp_path / "file"
    with path.open("wb", buffering=buffering) as sink, create(sink, suffix) as out:
        out.write_many(RECORDS)
        out.close()
        assert path.read_bytes() == whole(suffix, tmp_path)


@pytest.mark.parametrize("answer", [0, 10**6])
def test_a_sink_that_miscounts_is_an_error(suffix: str, answer: int) -> None:
    with (
        pytest.raises(ValueError, match=rf"write\(\) of the file object returned {answer}"),
        create(Sink(lambda given: answer), suffix) as out,
    ):
        out.write(b"a")


@pytest.mark.parametrize("error", [OSError(5, "mine"), LookupError("mine"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("num_records", [None, 1])
def test_what_a_sink_raises_comes_out_as_it_went_in(suffix: str, error: BaseException, num_records: int | None) -> None:
    def fail(given: int) -> None:
        raise error

    sink = Sink()
    out = create(sink, suffix, num_records=num_records)
    out.write(b"a")
    sink.answer = fail
    with pytest.raises(type(error)) as caught:
        out.close()
    assert caught.value is error
    calls = sink.calls
    for again in (out.close, lambda: out.write(b"b")):
        with pytest.raises(ClosedError, match="discarded after an error"):
            again()
    out.discard()
    assert sink.calls == calls, "a sink that failed is not written to again"


def test_what_flush_raises_comes_out_too(suffix: str) -> None:
    class Unflushable(io.BytesIO):
        def flush(self) -> None:
            raise OSError(28, "full")

    out = create(Unflushable(), suffix)
    with pytest.raises(OSError, match="full"):
        out.close()


def test_a_sink_that_fails_while_records_come_stops_the_writer(tmp_path: Path) -> None:
    class Patchable(io.BytesIO):
        def write(self, data: Any) -> int:
            if len(data) > 100_000:
                raise OSError(28, "full")
            return super().write(data)

    with pytest.raises(OSError, match="full"), create(Patchable(), num_records=9) as out:
        out.write_many([bytes(1 << 20)] * 9)
    out = create(Patchable(), num_records=9)
    with pytest.raises(OSError, match="full"):
        out.write_many([bytes(1 << 20)] * 9)
    with pytest.raises(ClosedError, match="writing failed before"):
        out.write(b"more")
    with pytest.raises(ClosedError, match="writing failed before"):
        out.close()


def test_a_text_file_is_refused(tmp_path: Path, suffix: str) -> None:
    with (tmp_path / "text").open("w") as sink, pytest.raises(TypeError), create(sink, suffix) as out:
        out.write(b"a")


@pytest.mark.parametrize("sink", [None, 7, object(), b"path.ffr", open])
def test_what_cannot_be_written_to_is_refused_at_once(sink: object) -> None:
    with pytest.raises(TypeError, match="path"):
        create(sink)


def test_a_file_object_needs_a_format_and_takes_no_shards(suffix: str) -> None:
    with pytest.raises(ValueError, match=r"pass format=, one of .*ffrecord"):
        anyrecord.create(io.BytesIO())
    with pytest.raises(ValueError, match="shards cannot be written to a file object"):
        create(io.BytesIO(), suffix, shards=2)


def read_fifo(path: Path) -> bytes:
    with path.open("rb") as fifo:
        return fifo.read()


@pytest.mark.parametrize("num_records", [None, len(RECORDS)])
def test_a_fifo_is_streamed_to_and_stays(tmp_path: Path, suffix: str, num_records: int | None) -> None:
    """Also shows that creating gives the GIL away: the reader could not open its end of the pipe otherwise."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / f"fifo{suffix}"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read_fifo, path)
        with anyrecord.create(path, num_records=num_records) as out:
            out.write_many(RECORDS)
            assert names(folder) == [path.name]
        got = reader.result(LIMIT_SECONDS)
    assert got == whole(suffix, tmp_path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert names(folder) == [path.name]


def test_a_fifo_whose_reader_goes_away_is_a_broken_pipe(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"fifo{suffix}"
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: path.open("rb").close())
    reader.start()
    out = anyrecord.create(path)
    reader.join(LIMIT_SECONDS)
    with pytest.raises(BrokenPipeError):  # at once or at the end, as the format gathers records
        write_and_close(out, bytes(1 << 20))
    out.discard()


def write_and_close(out: anyrecord.Writer, record: bytes) -> None:
    out.write(record)
    out.close()


@pytest.mark.parametrize("suffix", [format.suffix for format in FORMATS if format.sees_cut_between_chunks])
def test_an_exception_sends_nothing_down_a_fifo_that_could_be_taken_for_whole(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"fifo{suffix}"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read_fifo, path)
        out = anyrecord.create(path)
        out.write(b"a")
        with pytest.raises(LookupError), out:
            raise LookupError
        sent = reader.result(LIMIT_SECONDS)
    if sent == b"" and suffix in NO_END:
        return  # which is a file of no records, and all that can be done about it
    with pytest.raises(FormatError):
        anyrecord.open(sent, format=format_of(suffix))


def test_a_device_is_written_to_without_overwrite(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"null{suffix}"
    path.symlink_to("/dev/null")
    with anyrecord.create(path) as out:
        out.write_many(RECORDS)
    assert stat.S_ISCHR(path.stat().st_mode)
    assert out.num_records == len(RECORDS)


def test_threads_that_share_a_writer_write_each_record_once(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"shared{suffix}"
    with anyrecord.create(path, threads=2) as out, ThreadPoolExecutor(8) as pool:
        parts = [[b"%d" % number for number in range(first, 8000, 8)] for first in range(8)]
        list(pool.map(out.write_many, parts, timeout=LIMIT_SECONDS))
    found = list(anyrecord.open(path))
    assert sorted(map(int, found)) == list(range(8000))
    for first in range(8):
        own = [number for number in map(int, found) if number % 8 == first]
        assert own == sorted(own), "each thread's records stay in its order"
