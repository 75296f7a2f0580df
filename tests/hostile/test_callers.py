"""Arguments and objects of the caller that lie or are unusual: a precise answer, never a crash or wrong records."""

from __future__ import annotations

import io
import os
import signal
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyrecord
import numpy as np
import pytest
from anyrecord import ClosedError, Records


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return open_numbers(tmp_path / "numbers.ffr", range(5))


def open_numbers(path: Path, numbers: range) -> Records:
    with anyrecord.create(path, overwrite=True) as out:
        out.write_many(b"%d" % number for number in numbers)
    return anyrecord.open(path)


class LongerThanItIs:
    """Claims a length and has another."""

    def __init__(self, claim: int) -> None:
        self.claim = claim

    def __len__(self) -> int:
        return self.claim

    def __iter__(self) -> Iterator[int]:
        yield 0


@pytest.mark.parametrize("claim", [0, 2**40, 2**62])
def test_the_length_that_an_index_claims_is_not_believed(records: Records, claim: int) -> None:
    assert records[LongerThanItIs(claim)] == [b"0"]


def test_indices_in_the_other_byte_order_are_put_right(records: Records) -> None:
    assert records[np.array([1, 3], ">u2")] == [b"1", b"3"]
    assert records[np.array([1, 3], ">i8")] == [b"1", b"3"]
    with pytest.raises(IndexError):
        records[np.array([256], ">u2")]


def test_ranges_far_outside_are_index_errors_and_empty_ones_are_empty(records: Records) -> None:
    for far in (range(10**30, 10**30 + 1), range(-(2**63), 2**63 - 1), range(-(10**30), 0)):
        with pytest.raises(IndexError):
            records[far]
    assert records[range(10**30, 10**30)] == []


def test_a_slice_of_a_slice_takes_any_step(records: Records) -> None:
    assert list(records[::2][:: 2**62]) == [b"0"]
    assert list(records[::-2][:: -(2**62)]) == [b"0"]


def test_a_batch_size_may_be_any_integer_type(records: Records) -> None:
    assert [len(batch) for batch in records.batches(np.int64(2))] == [2, 2, 1]
    with pytest.raises(ValueError, match="size=0 is not valid: it must be a whole number from 1"):
        records.map(len).batches(0)


MORE_THAN_MEMORY = """
import numpy, anyrecord
with anyrecord.create("a.ffr", durable=False) as out:
    out.write_many(b"%d" % i for i in range(50))
with anyrecord.create("a.array_record", durable=False, group_size=5) as out:
    out.write_many(b"%d" % i for i in range(50))
for path in ("a.ffr", "a.array_record"):
    records = anyrecord.open(path)
    big = anyrecord.mix([records, records], [1, 1], length=2**62)
    order = anyrecord.Permutation(2**60, 1)
    many = range(2**40)
    same = numpy.broadcast_to(numpy.int32(3), 2**40)
    uses = dict(
        range=lambda: big[many],
        backwards=lambda: big[range(2**40, -1, -1)],
        negative=lambda: big[range(-(2**40), 0)],
        across=lambda: big[range(-5, 2**40)],
        array=lambda: big[same],
        every_other=lambda: big[same[::2]],
        getitems=lambda: big.__getitems__(many),
        mapped=lambda: big.map(len)[many],
        read_into=lambda: big.read_into(bytearray(8), many),
        read_into_array=lambda: records.read_into(bytearray(8), same),
        read_packed=lambda: big.read_packed(many),
        read_packed_array=lambda: records.read_packed(same),
        read_packed_slice=lambda: big.read_packed(slice(2**40)),
        batches=lambda: next(iter(big.batches(2**50))),
        packed_batches=lambda: next(iter(big.batches(2**50, packed=True))),
        mapped_batches=lambda: next(iter(big.map(len).batches(2**50))),
        take=lambda: order.take(many),
        take_array=lambda: order.take(same),
        sizes=lambda: big.sizes(),
        list=lambda: list(big),
    )
    for name, use in uses.items():
        try:
            found = use()
        except MemoryError:
            pass
        else:
            assert name == "sizes" and found is None and path == "a.array_record", (path, name)
print("all refused")
"""


def test_what_no_memory_can_hold_is_a_memory_error_and_no_crash() -> None:
    done = subprocess.run([sys.executable, "-c", MORE_THAN_MEMORY], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "all refused\n"), done.stderr


class Ends(io.RawIOBase):
    """A file object one of whose methods raises StopIteration from its `patience + 1`st call on."""

    def __init__(self, data: bytes, method: str, patience: int) -> None:
        self.memory, self.method, self.patience = io.BytesIO(data), method, patience

    def seekable(self) -> bool:
        return True

    def _call(self, method: str, *arguments: Any) -> Any:
        if method == self.method:
            self.patience -= 1
            if self.patience < 0:
                raise StopIteration("mine")
        return getattr(self.memory, method)(*arguments)

    def read(self, size: int = -1, /) -> Any:
        return self._call("read", size)

    def seek(self, offset: int, whence: int = 0, /) -> Any:
        return self._call("seek", offset, whence)

    def tell(self) -> Any:
        return self._call("tell")


@pytest.mark.parametrize("method", ["read", "seek"])
def test_a_stop_iteration_of_a_file_object_is_an_error_and_no_end(records: Records, suffix: str, method: str) -> None:
    memory = io.BytesIO()
    format = {".ffr": "ffrecord"}.get(suffix, suffix[1:])
    with anyrecord.create(memory, format=format) as out:
        out.write_many(b"%d" % i * 50 for i in range(3000))
    for use in (list, lambda them: them[0], lambda them: them[[0, 1]], lambda them: list(them.batches(100))):
        source = Ends(memory.getvalue(), method, 10**9)
        opened = anyrecord.open(source, cache_bytes=0)  # type: ignore[arg-type]
        source.patience = 0
        with pytest.raises(RuntimeError, match="StopIteration") as caught:
            use(opened)
        assert isinstance(caught.value.__cause__, StopIteration)
    source = Ends(memory.getvalue(), method, 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        anyrecord.open(source)  # type: ignore[arg-type]


def test_a_stop_iteration_of_an_index_is_an_error_and_no_end(records: Records) -> None:
    class Stops:
        def __index__(self) -> int:
            raise StopIteration

    for use in (
        lambda: records[Stops()],
        lambda: records[[Stops()]],
        lambda: list(map(records.__getitem__, [Stops()])),
    ):
        with pytest.raises(RuntimeError, match="StopIteration"):
            use()


def stop(*_: object) -> None:
    raise StopIteration("mine")


def test_a_stop_iteration_of_a_signal_handler_is_an_error_and_no_end(tmp_path: Path) -> None:
    path = tmp_path / "numbers.ffr"
    open_numbers(path, range(20_000)).close()
    before = signal.signal(signal.SIGUSR1, stop)

    class Signals(Ends):
        def read(self, size: int = -1, /) -> Any:
            if self.patience == 0:
                os.kill(os.getpid(), signal.SIGUSR1)
            return super().read(size)

    try:
        source = Signals(path.read_bytes(), "read", 10**9)
        opened = anyrecord.open(source)  # type: ignore[arg-type]
        iterator = iter(opened)
        next(iterator)
        source.patience, source.method = 0, "no method"
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(iterator)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_stop_iteration_of_progress_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "numbers.tfrecord"
    open_numbers(path, range(1000)).close()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_bytes(b"a")
    anyrecord.pack(tmp_path / "folder", tmp_path / "packed.ffr")
    for use in (
        lambda: anyrecord.verify(path, progress=stop),
        lambda: anyrecord.convert(path, tmp_path / "new.ffr", progress=stop),
        lambda: anyrecord.build_index(path, progress=stop),
        lambda: anyrecord.pack(tmp_path / "folder", tmp_path / "new.ffr", progress=stop),
        lambda: anyrecord.Folder(tmp_path / "packed.ffr").unpack(tmp_path / "new", progress=stop),
    ):
        with pytest.raises(RuntimeError, match="StopIteration") as caught:
            use()
        assert isinstance(caught.value.__cause__, StopIteration)


def test_an_array_of_python_objects_is_no_record(tmp_path: Path) -> None:
    with anyrecord.create(tmp_path / "a.ffr") as out, pytest.raises(TypeError, match="Python objects"):
        out.write(np.array([None, 1], dtype=object))


def test_a_table_that_memory_cannot_hold_is_a_memory_error(tmp_path: Path) -> None:
    path = tmp_path / "sparse.ffr"
    count = 200_000_000
    path.write_bytes(struct.pack("<IQ", 1, count))
    os.truncate(path, 12 + 12 * count + 5)
    program = f"""
        import resource, anyrecord
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        try:
            anyrecord.open({str(path)!r})
        except MemoryError as error:
            print("MemoryError", error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MemoryError no memory for FFRecord table of 2400000000 bytes")


def descriptors_of(path: Path) -> int:
    folder = Path("/proc/self/fd")
    return sum(1 for fd in folder.iterdir() if os.path.exists(fd) and os.readlink(fd) == str(path))


def maps_of(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def test_close_gives_the_descriptor_back_and_nothing_opens_it_again(tmp_path: Path) -> None:
    path = tmp_path / "numbers.ffr"
    records = open_numbers(path, range(5))
    assert records[0] == b"0"
    assert (descriptors_of(path), maps_of(path)) == (1, 1)
    part, iterator = records[1:], iter(records)
    assert next(iterator) == b"0"
    records.close()
    assert descriptors_of(path) == 0
    uses: list[Any] = [
        lambda: records[0],
        lambda: records[[]],
        lambda: records[0:1],
        lambda: part[0],
        lambda: records.locate(0),
        lambda: records.sizes(),
        lambda: records.read_into(bytearray(9), []),
        lambda: records + records,
        lambda: next(iterator),
        lambda: list(records),
    ]
    for use in uses:
        with pytest.raises(ClosedError):
            use()
    assert (descriptors_of(path), maps_of(path)) == (0, 0)
    assert (len(records), records.paths) == (5, [str(path)])


def test_closing_records_takes_no_file_away_from_others_that_share_it(tmp_path: Path) -> None:
    path = tmp_path / "numbers.ffr"
    records = open_numbers(path, range(5))
    both = records + open_numbers(tmp_path / "others.ffr", range(5, 10))
    assert both[0] == b"0"
    records.close()
    open_numbers(path, range(90, 95)).close()
    assert (both[0], both[5]) == (b"0", b"5")
    assert descriptors_of(path) == 0, "of the new file"
    both.close()
    with pytest.raises(ClosedError):
        both[0]


def test_a_file_object_without_a_name_is_called_by_its_type() -> None:
    class Nameless(io.BufferedIOBase):
        def __init__(self, data: bytes) -> None:
            self.memory = io.BytesIO(data)
            self.read = self.memory.read  # type: ignore[method-assign]
            self.seek = self.memory.seek  # type: ignore[method-assign]
            self.tell = self.memory.tell  # type: ignore[method-assign]

        def seekable(self) -> bool:
            return True

    memory = io.BytesIO()
    with anyrecord.create(memory, format="ffrecord") as out:
        out.write(b"x")
    records = anyrecord.open(Nameless(memory.getvalue()))  # type: ignore[arg-type]
    assert records.paths == ["<Nameless object>"]
