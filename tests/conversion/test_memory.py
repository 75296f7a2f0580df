"""Memory does not grow with the files."""

from __future__ import annotations

import os

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
options = eval(sys.argv[2])
done = anyrecord.convert("large.tfrecord", sys.argv[1], durable=False, threads=2, **options)
print(done.records, (peak() - before) // 1024)
"""


@pytest.mark.parametrize(
    ("target", "options", "most"),
    [
        ("b.array_record", {}, 40),
        ("b.array_record", {"group_size": 100, "shards": 3}, 40),
        ("b.ffr", {}, 40),
        ("b.recordio", {"codec": "none", "chunk_bytes": 1 << 20}, 40),
        ("b.tfrecord", {"codec": "gzip", "level": 1}, 40),
    ],
)
def test_two_hundred_megabytes_are_converted_in_a_few(target: str, options: dict[str, object], most: int) -> None:
    pool, count = os.urandom(1 << 20), 200_000
    with anyrecord.create("large.tfrecord", durable=False) as out:
        for number in range(count):
            at = number * 1000 % 1_000_000
            out.write(pool[at : at + 1000])
    assert os.path.getsize("large.tfrecord") > 200_000_000
    records, megabytes = map(int, python(SCRIPT, target, repr(options)).split())
    assert records == count
    assert megabytes < most
