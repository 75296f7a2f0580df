"""FFRecord headers patched field by field (`hostile/patches.py`).

After a patch the CRC is made right again, so that nothing but the check of the structure can refuse the file. All are
opened in one process that may have 1 GiB of memory, so that a count or an offset that is believed would end it.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from pathlib import Path

import anyrecord
import pytest
from anyrecord import ChecksumError
from conformance.formats import FORMATS, Case
from conformance.storages import write

from hostile.patches import CHECKSUM, OFFSET, PATCHES, SAMPLES, N, fix_checksum, number, patched, plain
from hostile.small import read_all

CASE = Case(next(format for format in FORMATS if format.name == "ffrecord"), "")

OPEN_ALL = """
import json, resource, sys
import anyrecord
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
found = {}
try:
    bytearray(2 << 30)
except MemoryError:
    found["guard"] = "on"
for path in json.load(sys.stdin):
    for way, keywords in {"checked": {}, "unchecked": {"checksums": False}, "verified": None}.items():
        try:
            if keywords is None:
                problems = anyrecord.verify(path).problems
                name = type(problems[0]).__name__ if problems else "ok"
            else:
                name = f"{len(list(anyrecord.open(path, **keywords)))} records"
        except Exception as error:
            name = type(error).__name__
        found[f"{path} {way}"] = name
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of each patched file, by its number and the way it was read."""
    folder = tmp_path_factory.mktemp("patched")
    for index, name in enumerate(PATCHES):
        (folder / f"{index}.ffr").write_bytes(patched(name))
    (folder / "plain.ffr").write_bytes(plain())
    names = json.dumps([f"{index}.ffr" for index in range(len(PATCHES))] + ["plain.ffr"])
    command = [sys.executable, "-c", OPEN_ALL]
    done = subprocess.run(command, input=names, capture_output=True, text=True, cwd=folder, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_the_file_is_right_before_it_is_patched(outcomes: dict[str, str], tmp_path: Path) -> None:
    assert outcomes["guard"] == "on", "too much memory would have been an error"
    assert outcomes["plain.ffr checked"] == outcomes["plain.ffr unchecked"] == f"{N} records"
    assert outcomes["plain.ffr verified"] == "ok"
    write(tmp_path / "ours.ffr", SAMPLES, CASE)
    assert (tmp_path / "ours.ffr").read_bytes() == plain() == fix_checksum(plain())


@pytest.mark.parametrize("patch", PATCHES)
def test_a_patched_field_is_a_named_error_whatever_its_checksum_says(outcomes: dict[str, str], patch: str) -> None:
    path, expected = f"{list(PATCHES).index(patch)}.ffr", PATCHES[patch][1].split()
    assert outcomes[f"{path} checked"] in expected
    assert outcomes[f"{path} verified"] in expected
    if expected != ["ChecksumError"]:
        assert outcomes[f"{path} unchecked"] in expected, "structure is checked without checksums too"


@pytest.mark.parametrize("patch", PATCHES)
def test_a_patched_field_is_found_in_memory_too(patch: str) -> None:
    outcome = read_all(patched(patch), "ffrecord")
    assert type(outcome.error).__name__ in PATCHES[patch][1].split()
    assert outcome.error is not None
    assert (outcome.error.path, outcome.records) == ("<bytes>", ())
    assert outcome.error.offset is not None
    assert outcome.error.expected
    assert outcome.error.found


def test_a_moved_offset_costs_the_two_samples_beside_it_and_no_other() -> None:
    file = plain()
    (offset,) = struct.unpack_from("<q", file, OFFSET[4])
    number(OFFSET[4], offset + 3)(file)
    with anyrecord.open(bytes(fix_checksum(file))) as records:
        for index in range(N):
            if index in (3, 4):
                with pytest.raises(ChecksumError) as caught:
                    records[index]
                assert caught.value.record == index
            else:
                assert records[index] == SAMPLES[index]


def test_the_stored_checksum_of_each_sample_is_compared() -> None:
    for index in range(N):
        file = plain()
        file[CHECKSUM[index]] ^= 1
        outcome = read_all(bytes(fix_checksum(file)), "ffrecord")
        assert isinstance(outcome.error, ChecksumError)
        assert outcome.error.record == index
        assert outcome.opened == (index != N - 1), "the last one is looked at when the file is opened"


def test_a_large_last_sample_that_was_cut_is_found_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.ffr"
    write(path, [b"small", random.Random(5).randbytes(2 << 20)], CASE)
    data = path.read_bytes()
    for other in (data[:-1], data + b"\0", data[: -(1 << 19)]):
        path.write_bytes(other)
        with anyrecord.open(path) as records:
            assert records[0] == b"small"
            with pytest.raises(ChecksumError) as caught:
                records[1]
            assert (caught.value.path, caught.value.record) == (str(path), 1)
        assert anyrecord.verify(path).problem_count == 1


def test_a_header_of_zeros_is_an_unfinished_file_and_no_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "unfinished.ffr"
    for size in (13, 24, 1000):
        path.write_bytes(bytes(size))
        with pytest.raises(anyrecord.FormatError, match="unfinished"):
            anyrecord.open(path)
