"""What a killed writer leaves holds the first records, whole and in order, and not more."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord import _core

from writing.killed import left_behind, prefix
from writing.stopping import GO_ON, KILL, can_stop, stop_at_each

pytestmark = pytest.mark.filterwarnings("ignore")

SETTINGS: dict[str, dict[str, Any]] = {
    ".ffr": {},
    ".tfrecord": {},
    ".recordio": {"chunk_bytes": 1 << 20},
    ".array_record": {"group_size": 8},
}


def records(seed: int) -> list[bytes]:
    """Many small records, some empty ones, a few large ones. Not compressible, so that much is written."""
    random_ = random.Random(seed)
    sizes = [random_.choice([0, 1, 100, 5_000, 60_000]) for _ in range(1200)] + [900_000] * 3
    random_.shuffle(sizes)
    return [random_.randbytes(size) for size in sizes]


def left_in(folder: Path, format: str) -> list[bytes]:
    """The records in what a killed writer left: in the samples that wait for a table if there are any."""
    found = anyrecord.recover(folder, remove=False).temporaries
    assert {one.state for one in found} <= {"stale"}
    if not found:  # killed before the first file was created
        return []
    (path,) = [one.path for one in found if "samples" in one.path] or [one.path for one in found]
    return prefix(path, "tfrecord" if "samples" in path else format)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_writer_leaves_an_exact_prefix(tmp_path: Path, suffix: str, counted: bool, seed: int) -> None:
    written = records(seed)
    killed_after = random.Random(seed).randrange(len(written) * 3 // 4, len(written))
    keywords: dict[str, Any] = {"num_records": len(written)} if counted else {}
    left_behind(tmp_path / f"a{suffix}", written[:killed_after], threads=0, **SETTINGS[suffix], **keywords)
    found = left_in(tmp_path, _core.format_of_suffix(f"a{suffix}") or "")
    assert found == written[: len(found)]
    # What waits in memory is lost: a group of about a megabyte, and what is buffered.
    lost = sum(map(len, written[len(found) : killed_after]))
    assert lost < 3_000_000


@pytest.mark.skipif(not can_stop(), reason="the system has no seccomp notification")
@pytest.mark.parametrize("counted", [False, True])
def test_a_kill_at_any_write_leaves_an_exact_prefix(tmp_path: Path, suffix: str, counted: bool) -> None:
    # The same bytes each time: in others, a wrong place can have the right checksum by chance.
    chance = random.Random(5)
    written = [chance.randbytes(size) for size in [700_000, 0, 3, 900_000, 0] * 6]
    keywords: dict[str, Any] = {"num_records": len(written)} if counted else {}
    path = tmp_path / f"a{suffix}"

    def write() -> None:
        with anyrecord.create(path, durable=False, threads=0, **SETTINGS[suffix], **keywords) as out:
            out.write_many(written)

    step, most = 0, 0
    while stop_at_each(write, lambda number, call: KILL if number == step else GO_ON) is None:  # noqa: B023
        if not path.exists():
            found = left_in(tmp_path, _core.format_of_suffix(path.name) or "")
            if suffix == ".array_record":
                found = found[: len(written)]  # read as Riegeli, the footer looks like more records
            assert found == written[: len(found)], f"killed at change {step}"
            most = max(most, len(found))
        path.unlink(missing_ok=True)
        anyrecord.recover(path)
        step += 1
    assert step > 3
    assert most >= len(written) - 2, "the last kill comes when all is written"


def test_samples_that_wait_on_disk_or_in_memory_give_the_same_file(tmp_path: Path) -> None:
    for seed, sizes in enumerate(
        [
            [0, 0, 5, 3_000_000, 0, 7_000_000, 1, 0, 0],
            [9_000_000],
            [0] * 20_000 + [8_388_608, 1],
            [1 << 20] * 12,
            [random.Random(1).randrange(3000) for _ in range(20_000)],
        ]
    ):
        samples = [random.Random(seed + size).randbytes(size) for size in sizes]
        for name, number in {"spooled.ffr": None, "placed.ffr": len(samples)}.items():
            with anyrecord.create(tmp_path / name, overwrite=True, durable=False, num_records=number) as out:
                out.write_many(samples)
        assert (tmp_path / "spooled.ffr").read_bytes() == (tmp_path / "placed.ffr").read_bytes()
        assert list(anyrecord.open(tmp_path / "spooled.ffr")) == samples
        assert anyrecord.verify(tmp_path / "spooled.ffr")


def test_an_unfinished_file_with_a_table_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    left_behind(tmp_path / "a.ffr", [b"x" * 3_000_000] * 3, num_records=10)
    (left,) = anyrecord.recover(tmp_path / "a.ffr", remove=False).temporaries
    with pytest.raises(anyrecord.RecordError):
        anyrecord.open(left.path, format="ffrecord")
