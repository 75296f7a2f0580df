"""FFRecord beyond 32 bits: a sample over 4 GiB, a table over 2 GiB, and what ten million samples cost.

The files are mostly holes, and their checksums are computed from those of their parts. Each is deleted as soon
as its test is done: pytest would keep it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import anyrecord
import numpy as np
import pytest
from anyrecord import ChecksumError, TruncatedError
from children import python

from large.crc32 import crc32_of_repeats, crc32_of_two

GIB = 1 << 30


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "large.ffr"
    yield path
    path.unlink(missing_ok=True)


# One sample over 4 GiB

BEGIN, END = b"the first bytes of it", b"the last bytes of it"
HUGE = 4 * GIB + 12_345


def write_huge_sample(path: Path) -> None:
    """Three samples; the second has 4 GiB and some, all zeros but for its ends."""
    zeros = HUGE - len(BEGIN) - len(END)
    crc = crc32_of_two(zlib.crc32(BEGIN), crc32_of_repeats(b"\0", zeros), zeros)
    crc = crc32_of_two(crc, zlib.crc32(END), len(END))
    checksums = struct.pack("<3I", zlib.crc32(b"small"), crc, zlib.crc32(b"last"))
    data = 12 + 12 * 3
    offsets = struct.pack("<3q", data, data + 5, data + 5 + HUGE)
    tables = struct.pack("<q", 3) + checksums + offsets
    with path.open("wb") as file:
        file.write(struct.pack("<I", zlib.crc32(tables)) + tables + b"small" + BEGIN)
        file.seek(zeros, 1)
        file.write(END + b"last")


def test_a_sample_over_4_gib_is_read_whole_and_every_bit_of_it_verified(path: Path) -> None:
    write_huge_sample(path)
    with anyrecord.open(path) as records:
        sizes = records.sizes()
        assert sizes is not None
        assert list(sizes) == [5, HUGE, 4]
        assert records[[2, 0]] == [b"last", b"small"]
        record = records[1]  # its checksum is verified over all of it
        assert len(record) == HUGE
        assert record.startswith(BEGIN)
        assert record.endswith(END)
        del record
    about = anyrecord.info(path)
    assert (about.records, about.record_bytes) == (3, HUGE + 9)
    report = anyrecord.verify(path)
    assert report.ok, str(report)
    assert (report.records, report.record_bytes, report.file_bytes) == (3, HUGE + 9, path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(4 * GIB + 99)
        file.write(b"\x01")
    report = anyrecord.verify(path)
    (problem,) = report.problems
    assert isinstance(problem, ChecksumError)
    assert (problem.record, problem.offset) == (1, 12 + 12 * 3 + 5)
    assert (report.records, report.record_bytes) == (2, 9)


# A table over 2 GiB

MANY = 268_434_944 + 1_000
"""The original reads its table of offsets with one call, which on Linux moves no more than 2^31 - 4096 bytes."""


def write_empty_samples(path: Path, n: int) -> None:
    """Samples without bytes: the checksums are zeros, a hole, and all offsets are the end of the file."""
    end, buffered = 12 + 12 * n, 1 << 21
    offsets = crc32_of_repeats(struct.pack("<q", end), n)
    crc = crc32_of_two(zlib.crc32(struct.pack("<q", n)), crc32_of_repeats(bytes(4), n), 4 * n)
    crc = crc32_of_two(crc, offsets, 8 * n)
    block = np.full(buffered, end, dtype="<i8")
    with path.open("wb", buffering=0) as file:
        file.write(struct.pack("<Iq", crc, n))
        file.seek(4 * n, 1)
        for first in range(0, n, buffered):
            piece = block[: min(buffered, n - first)].data
            assert file.write(piece) == piece.nbytes


def test_a_table_over_2_gib_opens_and_reads_at_both_ends_and_in_the_middle(path: Path) -> None:
    write_empty_samples(path, MANY)
    assert path.stat().st_size == 12 + 12 * MANY
    with anyrecord.open(path, expected_records=MANY) as records:
        assert len(records) == MANY
        some = [0, MANY // 2, 268_434_943, 268_434_944, MANY - 1, -1]
        assert records[some] == [b""] * len(some)
        assert records.locate(-1) == (str(path), MANY - 1, 0)
        with pytest.raises(IndexError):
            records[MANY]
    with path.open("r+b") as file:  # the last bytes of the table are looked at
        file.truncate(12 + 12 * MANY - 1)
    with pytest.raises(TruncatedError) as caught:
        anyrecord.open(path)
    assert caught.value.expected == f"at least {12 + 12 * MANY} bytes for {MANY} samples"


# What a table costs

MILLIONS = 10_000_000


@pytest.mark.parametrize("use", ["open", "read", "slice", "pickle", "verify"])
def test_ten_million_samples_take_at_most_16_bytes_each(path: Path, use: str) -> None:
    write_empty_samples(path, MILLIONS)
    script = """if True:
        import pickle, sys, anyrecord
        path, use = sys.argv[1:]
        def peak():
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
        with anyrecord.create("small.ffr", overwrite=True) as out:
            out.write_many([b"a"] * 1000)
        def act(path):
            if use == "verify":
                assert anyrecord.verify(path)
                return
            records = anyrecord.open(path)
            if use == "read":
                for index in range(0, len(records), len(records) // 1000):
                    records[index]
            elif use == "slice":
                assert len(records[::-1][5:-5].map(len)) == len(records) - 10
            elif use == "pickle":
                assert pickle.loads(pickle.dumps(records))[-1] == records[-1]
        act("small.ffr")
        before = peak()
        act(path)
        print(peak() - before)
    """
    taken = int(python(script, str(path), use))
    copies = 2 if use == "pickle" else 1  # both are open at the same time
    assert 11 * MILLIONS * copies < taken <= 16 * MILLIONS * copies
