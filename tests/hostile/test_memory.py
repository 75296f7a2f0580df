"""Where there is no memory for what a file really holds, that is a MemoryError that names the file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyrecord
import pytest
from children import python

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and RLIMIT_AS")

ROOM = 256 << 20
"""Bytes that the child may take besides what it has."""
RECORD = 3 * ROOM
"""A record that does not fit in it. Zeros, so that the file is small."""

WAYS = {
    "index": "records[0]",
    "iteration": "next(iter(records))",
    "batch": "records[[0]]",
    "scan": "anyrecord.convert(path, path + '.converted.ffr')",
    "verify": "anyrecord.verify(path)",
}

SCRIPT = """
import json, resource, sys
import anyrecord
path, room, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
records = anyrecord.open(path, threads=1)
records.close()
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
try:
    records = anyrecord.open(path, threads=1)
    eval(way)
    print(json.dumps(["finished", ""]))
except BaseException as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""

FILES: dict[str, dict[str, object]] = {
    "zstd.array_record": {"codec": "zstd"},
    "grouped.array_record": {"codec": "zstd", "group_size": 4},
    "brotli.array_record": {"codec": "brotli", "level": 1, "group_size": 4},
    "gzip.recordio": {"codec": "gzip", "level": 1, "chunk_bytes": 1 << 30},
    "snappy.recordio": {"codec": "snappy", "chunk_bytes": 1 << 30},
    "gzip.tfrecord.gz": {"level": 1},
}


@pytest.fixture(scope="module", params=FILES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name: str = request.param
    path = tmp_path_factory.mktemp("memory") / name
    with anyrecord.create(path, durable=False, **FILES[name]) as out:  # type: ignore[arg-type]
        out.write(bytes(RECORD))
        out.write(b"one more")
    return path


@pytest.mark.parametrize("way", WAYS)
def test_a_chunk_that_memory_cannot_hold_is_a_memory_error_that_names_the_file(path: Path, way: str) -> None:
    kind, text = json.loads(python(SCRIPT, str(path), str(ROOM), WAYS[way]))
    assert kind == "MemoryError", text
    assert path.name in text, text


WRITING = """
import json, resource, sys
import anyrecord
path, room = sys.argv[1], int(sys.argv[2])
record = bytes(room // 4 * 3)
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + room // 2, used + room // 2))
try:
    options = {"chunk_bytes": 1 << 30} if path.endswith(".recordio") else {}
    with anyrecord.create(path, threads=0, **options) as out:
        out.write(record)
    print(json.dumps(["finished", ""]))
except BaseException as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.mark.parametrize("name", ["a.ffr", "a.array_record", "a.recordio", "a.tfrecord"])
def test_a_record_that_memory_cannot_hold_twice_is_a_memory_error_for_a_writer(tmp_path: Path, name: str) -> None:
    kind, text = json.loads(python(WRITING, str(tmp_path / name), str(ROOM)))
    assert kind == "MemoryError", (kind, text)
    assert name in text, text
    assert list(tmp_path.iterdir()) == []
