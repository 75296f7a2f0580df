"""`anyrecord copy`: whole files, all together, and continued after an interruption."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.files import RECORDS, break_record, make, names
from cli.running import run


def test_files_keep_their_names_in_a_folder() -> None:
    make("a.ffr")
    break_record(make("b.tfrecord"))
    ran = run("copy", "a.ffr", "b.tfrecord", "there/")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0].startswith("copied 2 files, ")
    assert ran.lines[0].endswith(": there/a.ffr to there/b.tfrecord")
    for name in ("a.ffr", "b.tfrecord"):
        assert Path("there", name).read_bytes() == Path(name).read_bytes(), "damage is copied, too"


def test_one_file_and_shards_by_name() -> None:
    make("a.ffr")
    make("b.ffr", [b"b"])
    assert run("copy", "a.ffr", "c.ffr").lines == [
        f"copied 1 file, {os.path.getsize('a.ffr') / 1024:.1f} KiB, to c.ffr"
    ]
    assert run("copy", "a.ffr", "b.ffr", "s.ffr@2").code == 0
    assert Path("s-00001-of-00002.ffr").read_bytes() == Path("b.ffr").read_bytes()


def test_json() -> None:
    make("a.ffr")
    assert run("copy", "--json", "a.ffr", "there/", "--no-verify").json == {
        "dry_run": False,
        "files": 1,
        "bytes": os.path.getsize("a.ffr"),
        "continued": 0,
        "paths": ["there/a.ffr"],
        "verified": False,
    }


def test_a_dry_run_copies_nothing() -> None:
    make("a.ffr")
    make("b.ffr")
    ran = run("copy", "--dry-run", "a.ffr", "b.ffr", "there/")
    assert ran.code == 0
    assert [line.split()[3:] for line in ran.lines[1:3]] == [["there/a.ffr", "new"], ["there/b.ffr", "new"]]
    told = run("copy", "-n", "--json", "a.ffr", "b.ffr", "--overwrite").json
    assert [(one["sources"], one["paths"], one["replaces"]) for one in told["files"]] == [(["a.ffr"], ["b.ffr"], 1)]
    assert run("copy", "-n", "a.ffr", "memory://bucket/there/").code == 0
    assert names() == ["a.ffr", "b.ffr"]


def test_objects_are_copied() -> None:
    make("a.ffr")
    assert run("copy", "a.ffr", "memory://copied/there/").code == 0
    assert run("copy", "memory://copied/there/a.ffr", "back.ffr").code == 0
    assert Path("back.ffr").read_bytes() == Path("a.ffr").read_bytes()


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["", "dry"])
@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["a.ffr"], 2, "missing argument 'TARGET'"),
        (["a.ffr", "b.ffr"], 3, "b.ffr: File exists; pass --overwrite to replace it"),
        (["a.ffr", "b.ffr", "c.ffr"], 2, "2 files cannot all be copied to 'c.ffr'"),
        (["a.ffr[0:3]", "c.ffr"], 2, "copy copies whole files"),
        (["a.ffr", "c.ffr@3"], 2, "has 3 shards, but there are 1 files to copy"),
        (["missing.ffr", "c.ffr"], 3, "missing.ffr: No such file or directory"),
        (["a.ffr", "nowhere/c.ffr"], 3, "No such file or directory: the folder"),
        (["-", "c.ffr"], 2, "- is not possible here"),
        (["a.ffr", "-"], 2, "- is not possible here"),
    ],
)
def test_mistakes_are_told_before_anything_is_copied(args: list[str], code: int, text: str, dry: list[str]) -> None:
    make("a.ffr")
    make("b.ffr", RECORDS[:1])
    ran = run("copy", *args, *dry)
    assert (ran.code, ran.data) == (code, b""), ran.err
    assert text in ran.err
    assert names() == ["a.ffr", "b.ffr"]
