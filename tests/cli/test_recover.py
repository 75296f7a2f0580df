"""`anyrecord recover`: what killed writers left is shown, removed, saved, finished or taken back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyrecord
import pytest
from writing.killed import left_behind
from writing.stopping import can_stop, kill_at_rename

from cli.files import make, names
from cli.running import run

pytestmark = [
    pytest.mark.skipif(not can_stop(), reason="the system has no seccomp notification"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]

LARGE = [bytes([number]) * (1 << 20) for number in range(12)]


def test_nothing_to_recover_is_no_error() -> None:
    make("a.ffr")
    ran = run("recover", "a.ffr")
    assert (ran.code, ran.lines) == (0, ["a.ffr: nothing to recover"])
    told = run("recover", "--json", "a.ffr").json
    assert (told["interrupted"], told["temporaries"], told["error"]) == (False, [], None)


def test_temporary_files_are_shown_and_removed() -> None:
    left_behind("a.tfrecord", LARGE)
    (left,) = names()
    ran = run("recover", "--dry-run", "a.tfrecord")
    assert ran.code == 0
    assert left in ran.out
    assert ran.lines[-1] == (
        "'anyrecord recover a.tfrecord' would remove 1 temporary file; with --salvage-to, it saves their records"
    )
    (told,) = run("recover", "-n", "--json", ".").json["temporaries"]
    assert (told["path"], told["state"]) == (os.path.abspath(left), "stale")
    assert run("recover", "--no-remove", "a.tfrecord").code == 0
    assert names() == [left]
    ran = run("recover", "a.tfrecord")
    assert ran.lines[-1].startswith("removed 1 temporary file, ")
    assert names() == []


def test_records_of_a_killed_writer_are_saved() -> None:
    left_behind("a.tfrecord", LARGE)
    told = run("recover", "--json", "a.tfrecord", "--salvage-to", "saved.ffr").json
    (saved,) = told["salvaged"]
    assert saved["records"] == len(anyrecord.open("saved.ffr")) > 0
    assert len(names()) == 2, "nothing was removed"
    ran = run("recover", "a.tfrecord", "--salvage-to", "saved.ffr")
    assert (ran.code, "choose another name for --salvage-to" in ran.err) == (3, True)
    ran = run("recover", "a.tfrecord", "--salvage-to", "saved")
    assert (ran.code, "needs the suffix of a format" in ran.err) == (2, True)


@pytest.mark.parametrize(("keep", "first"), [("new", b"new"), ("old", b"old")])
def test_interrupted_publishing_is_finished_or_taken_back(keep: str, first: bytes) -> None:
    make("a.ffr", [b"old"] * 2, shards=2)
    kill_at_rename(lambda: make("a.ffr", [b"new"] * 3, shards=3, overwrite=True), 2)
    before = names()
    ran = run("recover", "a.ffr")
    assert (ran.code, ran.data) == (3, b"")
    assert "--keep" in ran.err
    ran = run("recover", "--dry-run", "a.ffr")
    assert ran.code == 0
    assert ran.lines[0].startswith("publishing was interrupted: ")
    told = run("recover", "-n", "--json", "a.ffr").json
    assert (told["interrupted"], told["kept"], told["error"]["type"]) == (True, None, "PublishError")
    assert names() == before
    ran = run("recover", "a.ffr", "--keep", keep)
    assert ran.code == 0
    count = 3 if keep == "new" else 2
    assert ran.lines[0] == f"publishing was interrupted; kept the {keep} set, {count} files"
    assert anyrecord.open(f"a.ffr@{count}")[0] == first


def test_a_wrong_value_is_a_usage_error() -> None:
    assert run("recover", "a.ffr", "--keep", "both").code == 2
    assert run("recover").code == 2
    assert run("recover", "memory://bucket/a.ffr", "--salvage-to", "b.ffr").code == 2
    assert run("recover", "memory://bucket/a.ffr").code == 0
    assert json.loads(run("recover", "--json", "memory://bucket/a.ffr").out)["target"] == "memory://bucket/a.ffr"
    assert not Path("b.ffr").exists()
