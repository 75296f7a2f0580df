"""A mapped file answers like a plain one, whatever was truncated, grown again or read before."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import anyrecord
import pytest
from anyrecord import Records

from process.record_files import expected, write

RECORDS = 120

Act = Callable[[Records], object]


def one(index: int) -> Act:
    return lambda records: records[index]


def batch(indices: list[int]) -> Act:
    return lambda records: records[indices]


def iterate(start: int) -> Act:
    def act(records: Records) -> list[object]:
        iterator, found = iter(records[start:]), list[object]()
        while True:
            try:
                found.append(next(iterator))
            except StopIteration:
                return found
            except (anyrecord.RecordError, OSError) as error:
                # The iterator goes on behind a record that cannot be read.
                found.append((type(error).__name__, str(error)))

    return act


def buffer(index: int) -> Act:
    return lambda records: bytes(records.buffer(index))


def into(indices: list[int]) -> Act:
    def act(records: Records) -> object:
        out = bytearray(sum(len(expected(index)) for index in indices))
        return records.read_into(out, indices), bytes(out)

    return act


def packed(indices: list[int]) -> Act:
    return lambda records: records.read_packed(indices).tolist()


def answer(act: Act, records: Records) -> object:
    """What it returns, or what it raises, without the name of the file."""
    try:
        found = act(records)
    except (anyrecord.RecordError, OSError) as error:
        return type(error).__name__, str(error)
    return found


def acts(chance: random.Random) -> list[Act]:
    """Some of each kind, in any order."""
    some = [chance.randrange(RECORDS) for _ in range(6)]
    many = [chance.choices(range(RECORDS), k=chance.randrange(1, 30)) for _ in range(4)]
    all_kinds = [
        *map(one, some),
        *map(buffer, some),
        *map(batch, many),
        *map(into, many),
        *map(packed, many),
        iterate(some[0]),
    ]
    return chance.sample(all_kinds, len(all_kinds))


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_truncated_again_and_again_both_answer_alike(tmp_path: Path, suffix: str, checksums: bool, seed: int) -> None:
    chance = random.Random(seed)
    paths = {io: tmp_path / io / f"data{suffix}" for io in ("plain", "map")}
    for path in paths.values():
        path.parent.mkdir()
    size = write(paths["plain"], range(RECORDS)).stat().st_size
    shutil.copyfile(paths["plain"], paths["map"])
    opened = {
        io: anyrecord.open(path, io=io, checksums=checksums, cache_bytes=0)  # type: ignore[arg-type]
        for io, path in paths.items()
    }
    # Sizes in the middle, near the end, at an edge of a page, and the original size again.
    sizes = [size, chance.randrange(size // 2, size), size - chance.randrange(1, 5000)]
    sizes += [chance.randrange(size) // 4096 * 4096, chance.randrange(size), size]
    failed = 0
    for step, length in enumerate(sizes):
        for path in paths.values():
            os.truncate(path, length)
        for act in acts(chance):
            plain, mapped = (str(answer(act, opened[io])).replace(str(paths[io]), "FILE") for io in ("plain", "map"))
            assert mapped == plain, f"step {step}: {length} of {size} bytes"
            failed += "Error" in plain[:40]
    assert failed > 0


def test_records_in_front_of_a_cut_are_still_read_in_place_of_an_error(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"data{suffix}", range(RECORDS))
    size = path.stat().st_size
    records = anyrecord.open(path, io="map", cache_bytes=0)
    os.truncate(path, size // 2)
    readable, errors = list[int](), dict[int, anyrecord.TruncatedError]()
    for index in reversed(range(RECORDS)):
        try:
            assert records[index] == expected(index)
            readable.append(index)
        except anyrecord.TruncatedError as error:
            errors[index] = error
    assert all((error.path, error.record) == (str(path), index) for index, error in errors.items())
    assert all(size // 2 <= (error.offset or 0) <= size for error in errors.values())
    assert sorted(readable) == list(range(len(readable)))
    assert RECORDS // 4 < len(readable) < RECORDS
    assert records[readable] == [expected(index) for index in readable]
    assert [bytes(records.buffer(index)) for index in readable] == [expected(index) for index in readable]
