"""What writers leave behind when they are killed: ours, and the originals'."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import anyrecord
import pytest
from children import LIMIT_SECONDS

from salvage.saving import saved_and_report

BEGIN = """
import os, random, sys
def records(path):
    # Until a megabyte of them is in the file: writers keep the last ones in memory.
    for number in range(20_000):
        yield random.Random(number).randbytes(4000)
        if os.path.exists(path()) and os.path.getsize(path()) > 1 << 20:
            break
"""

OURS = f"""{BEGIN}
import anyrecord
out = anyrecord.create(sys.argv[1], threads=0, **eval(sys.argv[2]))
for record in records(lambda: os.listdir()[0]):
    out.write(record)
os.kill(os.getpid(), 9)
"""

ARRAY_RECORD = f"""{BEGIN}
from array_record.python.array_record_module import ArrayRecordWriter
writer = ArrayRecordWriter("killed.array_record", sys.argv[1])
for record in records(lambda: "killed.array_record"):
    writer.write(record)
os.kill(os.getpid(), 9)
"""

TENSORFLOW = f"""{BEGIN}
import tensorflow as tf
writer = tf.io.TFRecordWriter("killed.tfrecord")
for record in records(lambda: "killed.tfrecord"):
    writer.write(record)
os.kill(os.getpid(), 9)
"""


def killed(script: str, *arguments: str) -> None:
    command = [sys.executable, "-c", script, *arguments]
    ran = subprocess.run(command, timeout=2 * LIMIT_SECONDS, check=False, capture_output=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()


def is_prefix(records: list[bytes]) -> bool:
    return records == [random.Random(number).randbytes(4000) for number in range(len(records))]


def all_in(size: int, per_chunk: int) -> int:
    """How many records a file of that size holds at least, with their framing and a last chunk that is cut."""
    return size // 4200 - per_chunk


@pytest.mark.parametrize(
    ("suffix", "options", "per_chunk"),
    [
        (".array_record", {"group_size": 1}, 1),
        (".array_record", {"group_size": 10}, 10),
        (".recordio", {"chunk_bytes": 65_536}, 16),
        (".tfrecord", {}, 1),
    ],
)
def test_a_temporary_of_ours_gives_a_prefix(suffix: str, options: dict[str, int], per_chunk: int) -> None:
    killed(OURS, f"train{suffix}", repr(options))
    (temporary,) = os.listdir()
    assert temporary.startswith(".train")
    found, report = saved_and_report(temporary)
    assert is_prefix(found)
    assert len(found) >= all_in(os.path.getsize(temporary), per_chunk) > 100, str(report)
    assert report.found_by_search == 0


@pytest.mark.framework
@pytest.mark.parametrize(
    ("options", "per_chunk"), [("group_size:1", 1), ("group_size:64,uncompressed", 64), ("group_size:10,brotli", 10)]
)
def test_what_a_killed_array_record_writer_leaves_gives_a_prefix(options: str, per_chunk: int) -> None:
    killed(ARRAY_RECORD, options)
    with pytest.raises(anyrecord.RecordError):
        anyrecord.open("killed.array_record")
    found, report = saved_and_report("killed.array_record")
    assert is_prefix(found)
    assert (report.format, report.found_by_search, bool(report)) == ("array_record", 0, False)
    assert len(found) >= all_in(os.path.getsize("killed.array_record"), per_chunk) > 100, str(report)
    # Its bytes alone say what it is.
    assert saved_and_report(Path("killed.array_record").read_bytes())[0] == found


@pytest.mark.framework
def test_what_a_killed_tensorflow_writer_leaves_gives_a_prefix() -> None:
    killed(TENSORFLOW)
    found, report = saved_and_report("killed.tfrecord")
    assert is_prefix(found)
    assert len(found) >= all_in(os.path.getsize("killed.tfrecord"), 1) > 100
    assert report.found_by_search == 0
