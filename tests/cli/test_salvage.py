"""`anyrecord salvage`: what can be read is saved, what is lost is told, and the damaged file stays as it is."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import anyrecord
import pytest

from cli.files import RECORDS, break_record, make, names
from cli.running import run, run_apart

SAVED = RECORDS[:7] + RECORDS[8:]


def test_what_is_left_is_saved_in_any_format(suffix: str) -> None:
    before = Path(break_record(make("bad.tfrecord"))).read_bytes()
    ran = run("salvage", "bad.tfrecord", f"good{suffix}")
    assert (ran.code, ran.err) == (1, ""), "something was lost"
    assert ran.lines[0] == f"saved 99 records to good{suffix}"
    assert ran.lines[1].startswith("lost 28 B of ")
    assert ran.lines[2].startswith("  bytes 196 to 224: ChecksumError: ")
    assert list(anyrecord.open(f"good{suffix}")) == SAVED
    assert Path("bad.tfrecord").read_bytes() == before


def test_an_undamaged_file_loses_nothing() -> None:
    make("a.ffr")
    ran = run("salvage", "a.ffr", "b.ffr")
    assert (ran.code, ran.lines) == (0, ["saved 100 records to b.ffr", "nothing was lost"])


def test_a_dry_run_writes_nothing_and_needs_no_target() -> None:
    break_record(make("bad.ffr"))
    for args in (["bad.ffr"], ["bad.ffr", "good.ffr"]):
        ran = run("salvage", "--dry-run", *args)
        assert ran.code == 1
        assert ran.lines[0] == "99 records could be saved; nothing was written, because of --dry-run"
    assert json.loads(run("salvage", "-n", "--json", "bad.ffr").out)["dry_run"] is True
    assert names() == ["bad.ffr"]
    make("taken.ffr")
    ran = run("salvage", "--dry-run", "bad.ffr", "taken.ffr")
    assert (ran.code, ran.err) == (3, "error: taken.ffr: File exists; pass --overwrite to replace it\n")


def test_json_has_all_figures() -> None:
    break_record(make("bad.tfrecord"))
    ran = run("salvage", "--json", "bad.tfrecord", "good.ffr")
    assert ran.code == 1
    told = json.loads(ran.out)
    done = anyrecord.salvage("bad.tfrecord")
    for name in ("format", "records", "found_by_search", "skipped_count", "lost_bytes", "unreadable_bytes", "ok"):
        assert told[name] == getattr(done, name)
    assert (told["sources"], told["paths"]) == (["bad.tfrecord"], ["good.ffr"])
    (skipped,) = told["skipped"]
    assert (skipped["path"], skipped["begin"], skipped["end"]) == done.skipped[0]
    assert skipped["type"] == "ChecksumError"


def test_records_go_through_a_pipe() -> None:
    data = Path(break_record(make("bad.tfrecord"))).read_bytes()
    for ran in (
        run("salvage", "-", "-", "--format", "ffrecord", stdin=data),
        run_apart("salvage", "-", "-", "--format", "ffrecord", stdin=data),
    ):
        assert ran.code == 1
        assert list(anyrecord.open(io.BytesIO(ran.data))) == SAVED
        assert "saved 99 records to standard output" in ran.err
        assert "lost 28 B" in ran.err
    ran = run("salvage", "--json", "bad.tfrecord", "-", "--format", "ffrecord")
    assert (ran.code, ran.data) == (2, b"")


def test_a_folder_gets_one_file_for_each_source() -> None:
    for name in ("a.tfrecord", "b.tfrecord"):
        break_record(make(name))
    assert run("salvage", "?.tfrecord", "saved/", "--format", "array_record", "--codec", "none").code == 1
    assert names("saved") == ["a.array_record", "b.array_record"]
    assert anyrecord.info("saved").codec == "none"


def test_strict_leaves_out_what_was_found_by_search() -> None:
    make("bad.tfrecord")
    data = bytearray(Path("bad.tfrecord").read_bytes())
    data[0] ^= 1  # the length of the first record
    Path("bad.tfrecord").write_bytes(data)
    ran = run("salvage", "bad.tfrecord", "all.ffr")
    assert "99 records of them found by search after damage; --strict leaves them out" in ran.lines
    assert run("salvage", "bad.tfrecord", "strict.ffr", "--strict").code == 1
    assert (len(anyrecord.open("all.ffr")), len(anyrecord.open("strict.ffr"))) == (99, 0)


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["bad.ffr"], 2, "missing argument 'TARGET'"),
        (["bad.ffr", "good.ffr"], 3, "good.ffr: File exists; pass --overwrite to replace it"),
        (["missing.ffr", "new.ffr"], 3, "missing.ffr: No such file or directory"),
        (["bad.ffr", "new.bin"], 2, "has no known suffix: pass --format"),
        (["bad.ffr", "bad.ffr", "--overwrite"], 2, "is a source, which is never replaced"),
        (["bad.ffr[0:3]", "new.ffr"], 2, "salvage reads whole files"),
        (["bad.ffr", "new.ffr", "--codec", "zstd"], 2, "codec"),
        (["garbage.bin", "new.ffr"], 1, "garbage.bin"),
    ],
)
def test_mistakes_are_told(args: list[str], code: int, text: str) -> None:
    break_record(make("bad.ffr"))
    make("good.ffr")
    Path("garbage.bin").write_bytes(os.urandom(1000))
    ran = run("salvage", *args)
    assert ran.code == code, ran.err
    assert text in ran.err
    assert not os.path.exists("new.ffr")
