"""The memory of a freed batch is used for the next one. Memory that is new to the process costs more than the read."""

from __future__ import annotations

import platform
from pathlib import Path

import anyrecord
import pytest
from children import python

READ = """
import resource, sys
import anyrecord

records = anyrecord.open(sys.argv[1], threads=1)
size, numbers = len(records[0]), list(range(len(records)))
for _ in range(3):
    batch = records[numbers]                               # now all pages of the file are mapped
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    batch = records[numbers]
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults / (10 * len(records) * size / 4096))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_the_memory_of_a_freed_batch_is_used_again(tmp_path: Path, size: int) -> None:
    path = tmp_path / "records.ffr"
    with anyrecord.create(path) as out:
        out.write_many(bytes(size) for _ in range(8_000_000 // size))
    assert float(python(READ, str(path))) < 0.1
