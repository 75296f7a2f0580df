"""Memory does not grow with the files, damaged or not."""

from __future__ import annotations

import os
from typing import Any

import anyrecord
import pytest
from children import python

SCRIPT = """
import re, sys, anyrecord

def peak():
    # Not what getrusage tells: that begins with the memory of the process that started this one.
    with open("/proc/self/status") as status:
        return int(re.search("VmHWM:\\\\s+([0-9]+)", status.read())[1])

before = peak()
done = anyrecord.salvage(sys.argv[1], "saved.tfrecord", durable=False, threads=2)
print(done.records, done.skipped_count, (peak() - before) // 1024)
"""


@pytest.mark.parametrize(
    ("name", "options", "per_chunk", "has_end"),
    [
        ("a.tfrecord", {}, 1, True),
        ("a.ffr", {"num_records": 80_000}, 1, True),
        ("a.recordio", {"codec": "snappy", "chunk_bytes": 1 << 20}, 1100, False),
        ("a.array_record", {"group_size": 100}, 100, True),
        ("a.array_record", {"group_size": 1, "codec": "none"}, 1, False),
    ],
)
def test_eighty_megabytes_are_salvaged_in_a_few(
    name: str, options: dict[str, Any], per_chunk: int, has_end: bool
) -> None:
    pool, count = os.urandom(1 << 20), 80_000
    with anyrecord.create(name, durable=False, **options) as out:
        for number in range(count):
            at = number * 1000 % 1_000_000
            out.write(pool[at : at + 1000])
    size = os.path.getsize(name)
    assert size > 80_000_000
    with open(name, "r+b") as file:
        if not has_end:
            file.truncate(size - 200_000)
        for at in (size // 3, size // 2):
            file.seek(at)
            file.write(bytes(64))
    records, skipped, megabytes = map(int, python(SCRIPT, name).split())
    assert count - 3 * per_chunk - 250 * (not has_end) - per_chunk <= records < count
    assert skipped >= 2
    assert megabytes < 60


def test_a_header_that_claims_gigabytes_costs_no_memory() -> None:
    """The claimed bytes are there, as a hole in the file."""
    with anyrecord.create("a.recordio", durable=False) as out:
        out.write_many([b"first"] * 100)
    size = os.path.getsize("a.recordio")
    with open("a.recordio", "r+b") as file:
        header = bytearray(file.read(20))
        header[12:16] = (700_000_000).to_bytes(4, "little")
        file.seek(size)
        file.write(header)
        file.truncate(size + 20 + 700_000_000)
    records, skipped, megabytes = map(int, python(SCRIPT, "a.recordio").split())
    assert (records, skipped) == (100, 1)
    assert megabytes < 60
