"""`anyrecord index`: index files are written, kept, or not needed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyrecord

from cli.files import make, names
from cli.running import run


def test_files_without_a_table_get_an_index(suffix: str) -> None:
    make(f"a{suffix}")
    needs = suffix in (".recordio", ".tfrecord")
    ran = run("index", f"a{suffix}")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0].startswith("written     " if needs else "not needed  ")
    assert names() == ([f".a{suffix}.index"] if needs else []) + [f"a{suffix}"]
    told = run("index", "--json", f"a{suffix}").json
    index = f".a{suffix}.index" if needs else None
    status = "kept" if needs else "not needed"
    assert told == {"ok": True, "files": [{"path": f"a{suffix}", "status": status, "index": index, "error": None}]}


def test_an_index_that_does_not_fit_is_written_again() -> None:
    make("a.tfrecord")
    run("index", "a.tfrecord")
    make("a.tfrecord", [b"other"] * 200, overwrite=True)
    assert run("index", "a.tfrecord").lines[0].startswith("written")
    assert len(anyrecord.open("a.tfrecord")) == 200


def test_it_goes_on_after_a_bad_file() -> None:
    make("a.tfrecord")
    make("z.tfrecord")
    Path("bad.tfrecord").write_bytes(os.urandom(100))
    ran = run("index", "bad.tfrecord", "missing.tfrecord", "?.tfrecord")
    assert ran.code == 3
    assert [line.split()[:2] for line in ran.lines if not line.startswith(" ")] == [
        ["failed", "bad.tfrecord"],
        ["failed", "missing.tfrecord"],
        ["written", "a.tfrecord"],
        ["written", "z.tfrecord"],
        ["4", "files:"],
    ]
    ran = run("index", "--json", "bad.tfrecord")
    assert ran.code == 1
    assert json.loads(ran.out)["files"][0]["error"]["exit_code"] == 1
    assert run("index", "-").code == 2


def test_the_index_of_an_object_is_an_object() -> None:
    make("a.tfrecord")
    anyrecord.copy("a.tfrecord", "memory://indexed/data/")
    told = run("index", "--json", "memory://indexed/data/a.tfrecord").json
    assert told["files"][0]["index"] == "memory://indexed/data/.a.tfrecord.index"
    assert len(anyrecord.open("memory://indexed/data/a.tfrecord")) == 100
