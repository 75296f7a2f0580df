"""`anyrecord convert`: every option reaches the library, pipes work, and nothing is replaced by mistake."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path

import anyrecord
import pytest
from children import LIMIT_SECONDS

from cli.files import RECORDS, break_record, make, names
from cli.running import COMMAND, environment, run, run_apart


def test_the_suffix_chooses_the_format(suffix: str) -> None:
    make("a.ffr")
    ran = run("convert", "a.ffr", f"b{suffix}")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0].startswith(f"converted 100 records to b{suffix} (")
    assert list(anyrecord.open(f"b{suffix}")) == RECORDS


def test_options_reach_the_writer() -> None:
    make("a.ffr")
    given = ["--codec", "brotli", "--level", "3", "--group-size", "10", "--window-log", "20", "--threads", "0"]
    assert run("convert", "a.ffr", "b.array_record", *given, "--transpose", "--no-durable", "--no-verify").code == 0
    about = anyrecord.info("b.array_record")
    assert (about.codec, about.chunks) == ("brotli", 10)
    assert about.options is not None
    assert "transpose:true" in about.options
    assert run("convert", "a.ffr", "c.array_record", "--codec", "zstd", "--level", "-5").code == 0
    assert run("convert", "a.ffr", "d.recordio", "--codec", "none", "--chunk-bytes", "1K").code == 0
    assert anyrecord.info("d.recordio").chunks == 2


def test_shards() -> None:
    make("a.ffr")
    ran = run("convert", "a.ffr", "b.tfrecord", "--shards", "3")
    assert "to 3 files, b-00000-of-00003.tfrecord to b-00002-of-00003.tfrecord" in ran.out
    assert list(anyrecord.open("b.tfrecord@3")) == RECORDS
    assert run("convert", "a.ffr", "c.ffr", "--shard-records", "30").code == 0
    assert [len(anyrecord.open(name)) for name in names() if name.startswith("c-")] == [30, 30, 30, 10]
    assert run("convert", "a.ffr", "d.ffr", "--shard-bytes", "0.5KiB").code == 0
    assert run("convert", "a.ffr", "e.ffr", "--shards", "2", "--shard-records", "3").code == 2


def test_ranges_globs_and_folders_are_sources() -> None:
    make("one.ffr")
    assert run("convert", "one.ffr", "a.ffr", "--shards", "2").code == 0
    assert run("convert", "a-*.ffr", "all.ffr").code == 0
    assert run("convert", "all.ffr[5:8]", "all.ffr[0:1]", "some.ffr").code == 0
    assert list(anyrecord.open("some.ffr")) == [*RECORDS[5:8], RECORDS[0]]
    assert run("convert", "a.ffr@2", "into/", "--format", "recordio").code == 0
    assert names("into") == ["a-00000-of-00002.recordio", "a-00001-of-00002.recordio"]


def test_records_go_through_a_pipe(suffix: str) -> None:
    data = Path(make(f"a{suffix}")).read_bytes()
    format = anyrecord.info(f"a{suffix}").format
    out = run("convert", "-", "-", "--format", "tfrecord", "--source-format", format, stdin=data)
    assert (out.code, out.err) == (
        0,
        f"converted 100 records to standard output (tfrecord, {len(out.data) / 1024:.1f} KiB)\n",
    )
    assert list(anyrecord.open(io.BytesIO(out.data))) == RECORDS


def test_a_pipe_of_processes() -> None:
    data = Path(make("a.ffr")).read_bytes()
    out = run_apart("convert", "-", "-", "--format", "array_record", "--quiet", stdin=data)
    assert (out.code, out.err) == (0, "")
    assert list(anyrecord.open(io.BytesIO(out.data))) == RECORDS


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    make("a.tfrecord", [os.urandom(1 << 20)] * 20)
    read, write = os.pipe()
    os.close(read)
    command = [*COMMAND, "convert", "a.tfrecord", "-", "--format", "tfrecord"]
    ran = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, timeout=LIMIT_SECONDS, check=False, env=environment()
    )
    os.close(write)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_json_has_what_was_written() -> None:
    make("a.ffr")
    told = run("convert", "--json", "a.ffr", "b.recordio").json
    assert told == {
        "dry_run": False,
        "format": "recordio",
        "records": 100,
        "source_bytes": os.path.getsize("a.ffr"),
        "file_bytes": os.path.getsize("b.recordio"),
        "paths": ["b.recordio"],
        "verified": True,
        "skipped": [],
    }


def test_damaged_records_stop_it_unless_they_are_skipped() -> None:
    break_record(make("bad.tfrecord"))
    ran = run("convert", "bad.tfrecord", "b.ffr")
    assert (ran.code, names()) == (1, ["bad.tfrecord"])
    ran = run("convert", "bad.tfrecord", "b.ffr", "--on-error", "skip")
    assert ran.code == 1
    assert "1 damaged record left out or replaced" in ran.err
    assert ran.err.startswith("warning: record 7 of bad.tfrecord is damaged")
    assert len(anyrecord.open("b.ffr")) == 99
    told = json.loads(run("convert", "--json", "bad.tfrecord", "c.ffr", "--on-error", "replace").out)
    assert (told["records"], [one["record"] for one in told["skipped"]]) == (100, [7])
    data = Path("bad.tfrecord").read_bytes()
    assert run("convert", "-", "d.ffr", "--on-error", "skip", stdin=data).code == 1
    assert len(anyrecord.open("d.ffr")) == 99
    ran = run("convert", "bad.tfrecord", "e.ffr", "--on-error", "skip", "--max-errors", "0")
    assert (ran.code, os.path.exists("e.ffr")) == (1, False)


def test_a_dry_run_writes_nothing() -> None:
    make("a.ffr")
    make("b.ffr")
    before = names()
    ran = run("convert", "--dry-run", "a.ffr", "b.ffr", "there/", "--format", "tfrecord")
    assert ran.code == 0
    assert [line.split()[3] for line in ran.lines[1:3]] == ["there/a.tfrecord", "there/b.tfrecord"]
    assert ran.lines[-1].endswith("would become tfrecord; nothing was written, because of --dry-run")
    told = run("convert", "-n", "--json", "a.ffr", "b.ffr", "c.recordio", "--shards", "2").json
    assert (told["dry_run"], told["format"]) == (True, "recordio")
    (file,) = told["files"]
    assert file["paths"] == ["c-00000-of-00002.recordio", "c-00001-of-00002.recordio"]
    assert (file["sources"], file["replaces"]) == (["a.ffr", "b.ffr"], 0)
    assert run("convert", "-n", "--json", "a.ffr", "b.ffr", "--overwrite").json["files"][0]["replaces"] == 1
    assert run("convert", "-n", "--json", "a.ffr", "d.ffr", "--shard-bytes", "1M").json["files"][0]["paths"] is None
    assert names() == before


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["", "dry"])
@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["a.ffr"], 2, "missing argument 'TARGET': where to write to; 'a.ffr' is the only name"),
        (["a.ffr", "b.ffr"], 3, "b.ffr: File exists; pass --overwrite to replace it"),
        (["a.ffr", "new.unknown"], 2, "has no known suffix: pass --format"),
        (["a.ffr", "new/"], 2, "is a folder: pass --format"),
        (["a.ffr", "new.ffr", "--codec", "zstd"], 2, "codec"),
        (["a.ffr", "new.tfrecord", "--codec", "zstd"], 2, "--codec zstd is not valid"),
        (["a.ffr", "new.array_record", "--level", "99"], 2, "--level 99 is not valid"),
        (["a.ffr", "nowhere/new.ffr"], 3, "No such file or directory: the folder"),
        (["missing.ffr", "new.ffr"], 3, "missing.ffr: No such file or directory"),
        (["a.ffr", "-", "-"], 2, "standard input, which cannot be read together"),
        (["a.ffr", "new.ffr", "--shard-bytes", "x"], 2, "'x' is not a size"),
        (["a.ffr", "new.ffr", "--format", "riegeli"], 2, "invalid value for '--format'"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(args: list[str], code: int, text: str, dry: list[str]) -> None:
    make("a.ffr")
    make("b.ffr", [b"old"])
    ran = run("convert", *args, *dry)
    assert ran.code == code, ran.err
    assert text in ran.err
    assert names() == ["a.ffr", "b.ffr"]
    assert list(anyrecord.open("b.ffr")) == [b"old"]


def test_overwrite_replaces() -> None:
    make("a.ffr")
    make("b.ffr", [b"old"])
    assert run("convert", "a.ffr", "b.ffr", "--overwrite").code == 0
    assert list(anyrecord.open("b.ffr")) == RECORDS


def test_a_url_is_a_target() -> None:
    make("a.ffr")
    ran = run("convert", "a.ffr", "memory://bucket/b.tfrecord")
    assert ran.code == 0
    ran = run("convert", "memory://bucket/b.tfrecord", "c.ffr")
    assert ran.code == 0
    assert list(anyrecord.open("c.ffr")) == RECORDS
