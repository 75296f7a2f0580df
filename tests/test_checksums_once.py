"""`checksums="once"`: hashes are checked at the first read of a chunk, and again after the file was changed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import ChecksumError

COUNT = 300
RECORDS = [bytes([i % 251]) * (100 + i) for i in range(COUNT)]
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("a.ffr", {}),
    ("a.array_record", {"codec": "none", "group_size": 1}),
    ("a.array_record", {"codec": "zstd", "group_size": 1}),
    ("a.array_record", {"codec": "none", "group_size": 16}),
    ("a.recordio", {"codec": "none"}),
    ("a.recordio", {"codec": "snappy"}),
    ("a.tfrecord", {}),
]


@pytest.fixture(params=KINDS, ids=lambda kind: " ".join([kind[0], *map(str, kind[1].values())]))
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name, options = request.param
    path = tmp_path.joinpath(name)
    with anyrecord.create(path, durable=False, **options) as out:
        out.write_many(RECORDS)
    return path


def change(path: Path) -> None:
    """Changes a byte of the chunk of record 150, in place. The file's time changes, too, whatever the clock shows."""
    with anyrecord.open(path) as records:
        *_, end = records._chunk(150)
    with path.open("r+b") as file:
        file.seek(end - 3)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    os.utime(path, (1, 1))


def damaged(records: anyrecord.Records) -> list[int]:
    """The records whose checksum is wrong."""
    found = []
    for i in range(len(records)):
        try:
            records[i]
        except anyrecord.RecordError:
            found.append(i)
    return found


@pytest.mark.parametrize("io", ["auto", "plain", "map"])
def test_every_way_of_reading_gives_the_right_records_in_every_epoch(path: Path, io: Any) -> None:
    with anyrecord.open(path, checksums="once", io=io, cache_bytes=0) as records:
        for _ in range(3):
            assert [records[i] for i in range(COUNT)] == RECORDS
            assert records[list(range(COUNT))] == RECORDS
            assert list(records) == RECORDS
            assert bytes(records.read_packed(range(COUNT)).data) == b"".join(RECORDS)


def test_damage_is_found_at_the_first_read(path: Path) -> None:
    change(path)
    with anyrecord.open(path) as records:
        expected = damaged(records)
    assert expected
    with anyrecord.open(path, checksums="once", cache_bytes=0) as records:
        assert damaged(records) == expected
        assert damaged(records) == expected, "damage is found again"
        with pytest.raises(ChecksumError):
            records[list(range(COUNT))]


def test_damage_is_found_after_the_file_was_changed(path: Path) -> None:
    with anyrecord.open(path, checksums="once", cache_bytes=0) as records:
        assert list(records) == RECORDS
        assert not damaged(records)
        change(path)
        damaged(records)  # the times of the file are looked at once in a while, at least once in this pass
        assert damaged(records)


def test_the_option_survives_pickling_and_is_checked(path: Path) -> None:
    records = pickle.loads(pickle.dumps(anyrecord.open(path, checksums="once")))
    assert list(records) == RECORDS
    for wrong in ("twice", "", "True"):
        with pytest.raises(ValueError, match="it must be True, False or 'once'"):
            anyrecord.open(path, checksums=wrong)  # type: ignore[arg-type]
