"""FFRecord has its table before the records. It is written last, to the first parts of an object."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyrecord
import pytest

from .servers import Played

PART = 5 << 20
ENTRY = 12
"""Bytes of a record in the table."""
HEADER = 16
ONE_PART = (PART - HEADER) // ENTRY
"""Records whose table fits into the first part."""

SETS = {
    "a table smaller than a part": (600, 30_000),
    "a table that ends inside the first part": (ONE_PART - 1000, 20),
    "a table as large as a part": (ONE_PART, 8),
    "a table of two parts": (ONE_PART + 1, 8),
    "a table of three parts": (2 * ONE_PART + 5, 3),
    "a table of two parts and nothing after it": (ONE_PART + 1, 0),
    "one part": (100, 1000),
    "nothing": (0, 0),
}


def records_of(count: int, size: int) -> list[bytes]:
    return [number.to_bytes(8, "little").ljust(size, b".")[:size] for number in range(count)]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("shards", [None, 2])
def test_the_object_is_the_local_file(name: str, shards: int | None) -> None:
    records = records_of(*SETS[name])
    with Played(protocol="s3") as server:
        for target, options in (
            ("a.ffr", {}),
            (server.url("a.ffr"), {"storage": {**server.storage, "upload_part_size": PART, "upload_memory": 3 * PART}}),
        ):
            count = len(records) * (shards or 1)
            with anyrecord.create(target, shards=shards, num_records=count, **options) as out:  # type: ignore[arg-type]
                for _ in range(shards or 1):
                    out.write_many(records)
        names = ["a.ffr"] if shards is None else [f"a-{number:05}-of-{shards:05}.ffr" for number in range(shards)]
        for key in names:
            assert server.get(key) == Path(key).read_bytes()
        assert server.uploads() == []


def write(server: Played, count: int, **options: Any) -> None:
    storage = {**server.storage, "upload_part_size": PART}
    with anyrecord.create(server.url("a.ffr"), storage=storage, **options) as out:
        out.write_many(records_of(count, 30_000))


def test_a_known_count_needs_no_temporary_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", os.path.abspath("missing"))
    with Played(protocol="s3") as server:
        write(server, 600, num_records=600)
        assert anyrecord.open(server.url("a.ffr"), storage=server.storage)[599][:8] == (599).to_bytes(8, "little")
        with pytest.raises(OSError, match="pass num_records= to write to a file or a store without one"):
            write(server, 600, overwrite=True)


@pytest.mark.parametrize("wrong", [599, 601, 10**6])
def test_another_count_publishes_nothing(wrong: int) -> None:
    with Played(protocol="s3") as server:
        with pytest.raises(ValueError, match="announced"):
            write(server, 600, num_records=wrong)
        assert server.get("a.ffr") is None
        assert server.uploads() == []


def test_a_table_that_no_object_can_hold_is_refused() -> None:
    with Played(protocol="s3") as server, pytest.raises(ValueError, match="no room for a table of"):
        write(server, 1, num_records=10**17)
