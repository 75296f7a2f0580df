"""Where salvaged records go: any target that `convert` has, complete or not at all. The source is never changed."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from children import LIMIT_SECONDS
from conformance.formats import CASES, Case

from salvage.saving import file_bytes, saved, saved_and_report

RECORDS = [b"%d" % number * 10 for number in range(300)]


@pytest.fixture
def damaged() -> str:
    """A file whose record 100 is damaged."""
    data = bytearray(file_bytes("tfrecord", RECORDS))
    data[data.index(RECORDS[100])] ^= 1
    Path("bad.tfrecord").write_bytes(data)
    return "bad.tfrecord"


KEPT = [*RECORDS[:100], *RECORDS[101:]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_file_without_damage_gives_what_convert_gives(case: Case) -> None:
    with anyrecord.create(f"a{case.format.suffix}", **case.options) as out:
        out.write_many(RECORDS)
    anyrecord.convert(f"a{case.format.suffix}", "converted.array_record")
    for threads in (1, 3):
        done = anyrecord.salvage(f"a{case.format.suffix}", "saved.array_record", overwrite=True, threads=threads)
        assert done, str(done)
        assert (done.records, done.lost_bytes, done.skipped, done.problems) == (300, 0, (), ())
        assert (done.paths, done.sources) == (("saved.array_record",), (f"a{case.format.suffix}",))
        assert Path("saved.array_record").read_bytes() == Path("converted.array_record").read_bytes()
        assert str(done).endswith("300 records saved, nothing lost")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_format_is_a_target(damaged: str, case: Case) -> None:
    done = anyrecord.salvage(damaged, f"b{case.format.suffix}", **case.options)
    assert list(anyrecord.open(f"b{case.format.suffix}")) == KEPT
    assert (done.records, done.format, bool(done)) == (299, "tfrecord", False)


def test_without_a_target_nothing_is_written(damaged: str) -> None:
    done = anyrecord.salvage(damaged)
    assert (done.records, done.paths, done.skipped_count) == (299, (), 1)
    assert os.listdir() == ["bad.tfrecord"]
    begin, end = done.skipped[0][1:]
    assert done.lost_bytes == end - begin == len(RECORDS[100]) + 16
    problem = done.problems[0]
    assert (problem.path, problem.record, type(problem)) == ("bad.tfrecord", 100, anyrecord.ChecksumError)
    assert str(done).splitlines()[1].startswith(f"  bytes {begin} to {end}: ChecksumError: ")


def test_shards_are_equal_and_in_order(damaged: str) -> None:
    done = anyrecord.salvage(damaged, "b.ffr", shards=4)
    assert [len(anyrecord.open(path)) for path in done.paths] == [75, 75, 75, 74]
    assert list(anyrecord.open("b.ffr@4")) == KEPT
    assert len(anyrecord.salvage(damaged, "c.ffr", shard_records=100).paths) == 3
    assert [
        len(anyrecord.open(path)) for path in anyrecord.salvage(b"", "d.ffr", source_format="tfrecord", shards=2).paths
    ] == [0, 0]


def test_several_sources_go_to_one_file_or_to_a_folder(damaged: str) -> None:
    Path("good.recordio").write_bytes(file_bytes("recordio", [b"more"]))
    done = anyrecord.salvage([damaged, "good.recordio"], "b.ffr")
    assert (done.format, done.records, done.source_bytes) == (
        "mixed",
        300,
        os.path.getsize(damaged) + os.path.getsize("good.recordio"),
    )
    assert list(anyrecord.open("b.ffr")) == [*KEPT, b"more"]
    done = anyrecord.salvage([damaged, "good.recordio"], "folder/", format="array_record")
    assert [os.path.basename(path) for path in done.paths] == ["bad.array_record", "good.array_record"]
    assert list(anyrecord.open("folder")) == [*KEPT, b"more"]
    with pytest.raises(ValueError, match="format="):
        anyrecord.salvage(damaged, "folder")


def test_numbers_of_found_records_count_all_sources() -> None:
    data = bytearray(file_bytes("tfrecord", RECORDS[:5]))
    data[0] ^= 1
    Path("a.tfrecord").write_bytes(file_bytes("tfrecord", RECORDS[:10]))
    Path("b.tfrecord").write_bytes(data)
    done = anyrecord.salvage(["a.tfrecord", "b.tfrecord"], "c.ffr")
    assert (done.records, done.found_by_search, done.found) == (14, 4, ((10, 14),))


def test_any_source_and_any_file_object(damaged: str) -> None:
    data = Path(damaged).read_bytes()
    with open(damaged, "rb") as file:
        for source in (data, bytearray(data), memoryview(data), io.BytesIO(data), file, Path(damaged), "*.tfrecord"):
            assert saved(source) == KEPT, type(source)


def test_a_target_is_not_replaced_unless_asked_for_and_a_source_never(damaged: str) -> None:
    before = Path(damaged).read_bytes()
    Path("old.ffr").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        anyrecord.salvage(damaged, "old.ffr")
    for target in (damaged, os.path.join(os.curdir, damaged), os.path.abspath(damaged)):
        for overwrite in (False, True):  # no error hints at overwrite=True, which does not help
            with pytest.raises(ValueError, match="never replaced"):
                anyrecord.salvage(damaged, target, overwrite=overwrite)
    os.symlink(damaged, "link.tfrecord")
    with pytest.raises(ValueError, match="source"):
        anyrecord.salvage(damaged, "link.tfrecord", overwrite=True)
    assert Path(damaged).read_bytes() == before
    assert anyrecord.salvage(damaged, "old.ffr", overwrite=True).records == 299


def test_nothing_is_published_if_a_later_source_cannot_be_read(damaged: str) -> None:
    Path("unknown").write_bytes(os.urandom(1000))
    with pytest.raises(anyrecord.FormatError, match="pass source_format="):
        anyrecord.salvage([damaged, "unknown"], "b.ffr")
    with pytest.raises(anyrecord.FormatError, match="pass source_format="):
        anyrecord.salvage([damaged, "unknown"], "folder/", format="ffrecord")
    assert sorted(name for name in os.listdir() if name != "folder") == ["bad.tfrecord", "unknown"]
    assert os.listdir("folder") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 2}, "pass one"),
        ({"format": "ffrecord"}, "pass one"),
        ({"codec": "zstd"}, "pass one"),
        ({"target": "b.ffr", "codec": "zstd"}, "codec"),
        ({"target": "b.unknown"}, "format="),
        ({"target": io.BytesIO(), "format": "ffrecord", "shards": 2}, "file object"),
        ({"source_format": "unknown"}, "unknown format"),
    ],
)
def test_options_that_make_no_sense_are_refused(damaged: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        anyrecord.salvage(damaged, **options)
    assert os.listdir() == ["bad.tfrecord"]


def test_wrong_types_are_refused(damaged: str) -> None:
    with pytest.raises(TypeError, match="progress"):
        anyrecord.salvage(damaged, progress=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword"):
        anyrecord.salvage(damaged, "b.ffr", colour="red")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="whole files"):
        anyrecord.salvage(f"{damaged}[0:3]")


def test_progress_grows_to_the_size_of_the_sources(damaged: str) -> None:
    for source, total in (([damaged, damaged], 2 * os.path.getsize(damaged)), (Path(damaged).read_bytes(), None)):
        seen: list[tuple[int, int]] = []
        saved(source, progress=lambda done, total, seen=seen: seen.append((done, total)))
        total = total or os.path.getsize(damaged)
        assert seen[-1] == (total, total)
        assert seen == sorted(seen)

    def fail(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        anyrecord.salvage(damaged, "b.ffr", progress=fail)
    assert not os.path.exists("b.ffr")


def test_progress_into_a_folder_has_one_total(damaged: str) -> None:
    sources = [f"copy{number}.tfrecord" for number in range(3)]
    for source in sources:
        Path(source).write_bytes(Path(damaged).read_bytes())
    seen: list[tuple[int, int]] = []
    anyrecord.salvage(sources, "saved/", format="ffrecord", progress=lambda done, total: seen.append((done, total)))
    total = 3 * os.path.getsize(damaged)
    assert {found for _, found in seen} == {total}
    assert seen == sorted(seen)
    assert seen[-1][0] == total


def test_errors_name_the_right_way_out(damaged: str) -> None:
    with pytest.raises(ValueError, match="format="):
        anyrecord.salvage(damaged, "without_suffix")
    with pytest.raises(TypeError, match=r"records\.paths"):
        anyrecord.salvage(anyrecord.open(damaged))  # type: ignore[arg-type]


def test_what_is_over_a_limit_is_skipped() -> None:
    records = [b"a" * 1000, b"b" * 100_000, b"c" * 1000]
    data = file_bytes("array_record", records, group_size=1)
    found, report = saved_and_report(data, limits=anyrecord.Limits(decoded_chunk_bytes=50_000))
    assert found == [records[0], records[2]]
    assert isinstance(report.problems[0], anyrecord.LimitError)
    # Together they are over the limit, each alone is not.
    many = [bytes([number]) * 10_000 for number in range(100)]
    data = file_bytes("array_record", many, group_size=1)
    assert saved(data, limits=anyrecord.Limits(decoded_bytes=25_000), threads=4) == many


SCRIPT = """
import os, signal, sys, threading, anyrecord
def halfway(done, total):
    if done > total // 4:
        os.kill(os.getpid(), signal.SIGINT)
try:
    anyrecord.salvage(sys.argv[1], "b.array_record", progress=halfway)
except KeyboardInterrupt:
    sys.exit(77)
"""


@pytest.mark.parametrize("format", ["tfrecord", "array_record"])
def test_ctrl_c_leaves_nothing_behind(format: str) -> None:
    with anyrecord.create(f"large.{format}", durable=False) as out:
        for _ in range(80):
            out.write(os.urandom(1 << 20))
    command = [sys.executable, "-c", SCRIPT, f"large.{format}"]
    child = subprocess.run(command, timeout=LIMIT_SECONDS, check=False)
    assert child.returncode == 77
    assert signal.SIGINT
    assert os.listdir() == [f"large.{format}"]
