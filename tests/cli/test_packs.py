"""`anyrecord pack` and `anyrecord unpack`: a folder there and back, and packs that want to escape."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyrecord
import pytest
from folder.listings import file, pack_listing, tree

from cli.files import make, make_folder, names
from cli.running import run, run_apart


def test_a_folder_goes_there_and_back() -> None:
    make_folder()
    ran = run("pack", "pets", "pets.ffr")
    assert (ran.code, ran.lines) == (0, ["packed 2 files, 24 B, in pets.ffr"])
    assert anyrecord.Folder("pets.ffr")["dogs/rex.txt"] == b"this is Rex"
    ran = run("unpack", "pets.ffr", "again")
    assert (ran.code, ran.lines) == (0, ["unpacked 2 files, 24 B, to again"])
    assert Path("again/dogs/rex.txt").read_text() == "this is Rex"


def test_json() -> None:
    make_folder()
    told = run("pack", "--json", "pets", "pets.ffr").json
    assert told == {"dry_run": False, "folder": "pets", "path": "pets.ffr", "files": 2, "bytes": 24}
    told = run("unpack", "--json", "pets.ffr", "again").json
    assert told == {
        "dry_run": False,
        "source": "pets.ffr",
        "folder": "again",
        "files": 2,
        "bytes": 24,
        "paths": ["cat.txt", "dogs/rex.txt"],
    }


def test_a_pack_goes_through_a_pipe() -> None:
    make_folder()
    run("pack", "pets", "pets.ffr")
    for ran in (run("pack", "pets", "-"), run_apart("pack", "pets", "-")):
        assert (ran.code, ran.err) == (0, "packed 2 files, 24 B\n")
        assert ran.data == Path("pets.ffr").read_bytes()
    assert run("unpack", "-", "one", stdin=ran.data).code == 0
    assert run_apart("unpack", "-", "two", stdin=ran.data).code == 0
    assert Path("one/cat.txt").read_text() == Path("two/cat.txt").read_text() == "this is a cat"
    assert run("pack", "--json", "pets", "-").code == 2


def test_dry_runs_write_nothing() -> None:
    make_folder()
    run("pack", "pets", "pets.ffr")
    before = names()
    ran = run("pack", "--dry-run", "pets", "other.ffr")
    assert (ran.code, ran.lines) == (0, ["2 files, 24 B, would be packed in other.ffr"])
    assert run("pack", "-n", "--json", "pets", "other.ffr").json["dry_run"] is True
    ran = run("unpack", "--dry-run", "pets.ffr", "again")
    assert (ran.code, ran.lines) == (0, ["again/cat.txt", "again/dogs/rex.txt"])
    assert ran.err == "2 files, 24 B, would be written\n"
    assert run("unpack", "-n", "--json", "pets.ffr", "again").json["paths"] == ["cat.txt", "dogs/rex.txt"]
    assert names() == before


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["pack", "pets", "old.ffr"], 3, "pass --overwrite to replace it"),
        (["pack", "pets", "-n", "old.ffr"], 3, "pass --overwrite to replace it"),
        (["pack", "missing", "new.ffr"], 3, "missing: No such file or directory"),
        (["pack", "old.ffr", "new.ffr"], 3, "old.ffr: Not a directory"),
        (["pack", "pets", "pets/new.ffr"], 2, "is inside 'pets', the folder to pack"),
        (["pack", "pets", "new.tfrecord"], 2, "has the suffix of another format"),
        (["pack", "s3://bucket/pets", "new.ffr"], 2, "only a local folder can be packed"),
        (["pack", "pets"], 2, "missing argument 'TARGET'"),
        (["unpack", "old.ffr", "new"], 1, "old.ffr"),
        (["unpack", "pets.ffr", "pets"], 3, "is not empty; pass --overwrite to replace files in it"),
        (["unpack", "pets.ffr", "pets", "-n"], 3, "is not empty; pass --overwrite to replace files in it"),
        (["unpack", "pets.ffr", "old.ffr"], 3, "the target exists and is not a folder"),
        (["unpack", "missing.ffr", "new"], 3, "missing.ffr: No such file or directory"),
        (["unpack", "pets.ffr"], 2, "missing argument 'FOLDER'"),
    ],
)
def test_mistakes_are_told(args: list[str], code: int, text: str) -> None:
    make_folder()
    make("old.ffr")
    run("pack", "pets", "pets.ffr")
    before = names()
    ran = run(*args)
    assert ran.code == code, ran.err
    assert text in ran.err
    assert names() == before


def test_overwrite_replaces_files_and_leaves_others() -> None:
    make_folder()
    run("pack", "pets", "pets.ffr")
    Path("pets/cat.txt").write_text("changed")
    Path("pets/other.txt").write_text("other")
    assert run("unpack", "pets.ffr", "pets", "--overwrite").code == 0
    assert Path("pets/cat.txt").read_text() == "this is a cat"
    assert Path("pets/other.txt").read_text() == "other"
    assert run("pack", "pets", "pets.ffr", "--overwrite").code == 0
    assert len(anyrecord.Folder("pets.ffr")) == 3


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["", "dry"])
@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "..", "a/../../escaped", "C:", "\x1b[2Jx/.."])
def test_a_pack_that_wants_to_escape_writes_nothing(name: str, dry: list[str]) -> None:
    os.mkdir("inner")
    pack_listing(Path("evil.ffr"), tree(file(name)), [b"evil"])
    before = names()
    ran = run("unpack", "evil.ffr", "inner/target", *dry)
    assert ran.code == 1
    assert "\x1b" not in ran.err
    assert (names(), names("inner")) == (before, [])
    error = run("unpack", "--json", "evil.ffr", "inner/target", *dry).error
    assert (error["type"], error["exit_code"]) == ("FormatError", 1)


def test_names_with_control_characters_reach_no_terminal_raw() -> None:
    os.mkdir("odd")
    Path("odd/a\x1b[31mb").write_text("x")
    run("pack", "odd", "odd.ffr")
    ran = run("unpack", "--dry-run", "odd.ffr", "new")
    assert ran.lines == ["new/a\\x1b[31mb"]
    assert json.loads(run("unpack", "-n", "--json", "odd.ffr", "new").out)["paths"] == ["a\x1b[31mb"]
