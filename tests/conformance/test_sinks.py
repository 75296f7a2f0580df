"""Writing to file objects, seekable or not, honest or not."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import anyrecord
import pytest
from anyrecord import ClosedError

from conformance.formats import Case
from conformance.storages import RECORDS, write, write_and_fail


class OnlyWrite:
    """All that is asked of an output."""

    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> int | None:
        self.written += data
        return None


class ShortWrite(OnlyWrite):
    """Takes a few bytes at a time, as a raw file may."""

    def write(self, data: bytes) -> int:
        self.written += data[:1000]
        return min(1000, len(data))


class ForwardOnly(io.RawIOBase):
    """Says that it cannot seek, as a pipe does."""

    def __init__(self) -> None:
        self.written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.written += data
        return len(data)


def write_to(sink: object, case: Case, **keywords: Any) -> None:
    write(cast(Any, sink), RECORDS, case, format=case.format.name, **keywords)


@pytest.fixture(params=[None, len(RECORDS)], ids=["unannounced", "announced"])
def announced(request: pytest.FixtureRequest) -> int | None:
    found: int | None = request.param
    return found


@pytest.fixture
def expected(case: Case) -> bytes:
    """The bytes that a path gets."""
    write(f"expected{case.suffix}", RECORDS, case)
    return Path(f"expected{case.suffix}").read_bytes()


def test_a_seekable_sink_gets_the_bytes_of_a_file(case: Case, announced: int | None, expected: bytes) -> None:
    memory = io.BytesIO()
    write_to(memory, case, num_records=announced)
    assert memory.getvalue() == expected
    with open("a", "w+b") as file:
        write_to(file, case, num_records=announced)
        assert Path("a").read_bytes() == expected, "flushed by the writer's close"
        assert not file.closed


@pytest.mark.parametrize("kind", [OnlyWrite, ShortWrite, ForwardOnly])
def test_a_sink_that_only_goes_forward_gets_the_same_bytes(
    case: Case, announced: int | None, expected: bytes, kind: type[OnlyWrite | ForwardOnly]
) -> None:
    sink = kind()
    write_to(sink, case, num_records=announced)
    assert bytes(sink.written) == expected


def test_a_pipe_gets_the_same_bytes(case: Case, expected: bytes) -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as reader, ThreadPoolExecutor(1) as pool:
        received = pool.submit(reader.read)
        with open(write_end, "wb") as writer:
            write_to(writer, case)
        assert received.result(timeout=60) == expected


def test_a_sink_is_written_from_where_it_stands(case: Case, announced: int | None, expected: bytes) -> None:
    memory = io.BytesIO(b"in front")
    memory.seek(0, io.SEEK_END)
    write_to(memory, case, num_records=announced)
    assert memory.getvalue() == b"in front" + expected
    assert memory.tell() == len(memory.getvalue())


def test_a_sink_has_no_suffix_so_the_format_is_asked_for(case: Case) -> None:
    with pytest.raises(ValueError, match="format="):
        anyrecord.create(io.BytesIO(), **case.options)


def test_the_error_of_a_sink_comes_out_and_ends_the_writer(case: Case) -> None:
    class Full(OnlyWrite):
        def write(self, data: bytes) -> int | None:
            raise OSError(28, "No space left on device")

    written: list[anyrecord.Writer] = []
    with pytest.raises(OSError, match="No space left") as caught:
        _create_write_and_close(Full(), case, written)
    assert caught.value.errno == 28
    for out in written:
        with pytest.raises(ClosedError):
            out.write(b"more")


def _create_write_and_close(sink: Any, case: Case, written: list[anyrecord.Writer]) -> None:
    """Some formats write something at once; where one does not, the writer is left in `written`."""
    out = anyrecord.create(sink, format=case.format.name, **case.options)
    written.append(out)
    out.write_many(RECORDS)
    out.close()


@pytest.mark.parametrize("answer", [0, 10**9, "3"])
def test_a_sink_that_lies_about_what_it_took_is_refused(case: Case, answer: Any) -> None:
    class Liar:
        def write(self, data: bytes) -> Any:
            return answer

    with pytest.raises((ValueError, TypeError)):
        write_to(Liar(), case)


@pytest.mark.parametrize("no_sink", [None, 5, [], object()], ids=type)
def test_what_cannot_be_written_to_is_a_type_error(case: Case, no_sink: Any) -> None:
    with pytest.raises(TypeError, match=type(no_sink).__name__):
        anyrecord.create(no_sink, format=case.format.name, **case.options)


def test_an_exception_in_the_block_finishes_nothing(case: Case, expected: bytes) -> None:
    sink = OnlyWrite()
    write_and_fail(sink, RECORDS, case, format=case.format.name)
    assert len(sink.written) < len(expected)
