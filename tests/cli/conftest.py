"""Files that many tests of the command line read."""

from __future__ import annotations

import os
from pathlib import Path
from zlib import crc32

import anyrecord
import pytest

HOSTILE = "evil\x1b[31m\n\u202e\x07.txt"
"""A name that would colour the terminal, forge a line, and turn text around."""

PNG_HEADER = b"IHDR\0\0\0\x40\0\0\0\x30\x08\x02\0\0\0"

RECORDS = [
    b"plain text\nof two lines",
    b'{"label": 7}',
    b"\x89PNG\r\n\x1a\n\0\0\0\r" + PNG_HEADER + crc32(PNG_HEADER).to_bytes(4, "big"),
    b"\x1b]0;owned\x07\x1b[2J",
    b"",
    "猫 \u202e x".encode(),
    b"\x80\x04}.",
]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """One file with records of many kinds."""
    path = tmp_path / "mixed.array_record"
    with anyrecord.create(path) as out:
        out.write_many(RECORDS)
    return path


@pytest.fixture
def shards(tmp_path: Path) -> str:
    """Three files with 30 records: "0" to "29", each file a third of them."""
    for shard in range(3):
        with anyrecord.create(tmp_path / f"train-{shard:05}-of-00003.tfrecord") as out:
            out.write_many(b"%d" % number for number in range(10 * shard, 10 * shard + 10))
    return f"{tmp_path}/train.tfrecord@3"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A file of ten records, of which number 3 is damaged."""
    path = tmp_path / "damaged.ffr"
    with anyrecord.create(path) as out:
        out.write_many(b"record %d" % number for number in range(10))
    data = bytearray(path.read_bytes())
    data[data.index(b"record 3")] ^= 1
    path.write_bytes(data)
    return path


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A packed folder with a hostile name in it."""
    folder = tmp_path / "pets"
    os.makedirs(folder / "dogs")
    (folder / "cat.txt").write_text("a cat")
    (folder / "7").write_text("seven")
    (folder / "dogs" / HOSTILE).write_bytes(b"evil")
    anyrecord.pack(folder, tmp_path / "pets.ffr")
    return tmp_path / "pets.ffr"
