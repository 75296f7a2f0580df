"""`info`, `ls`, `head`, `cat`, `get`: what they show of any format, and in which order."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import anyrecord
import pytest

from cli.conftest import HOSTILE, RECORDS
from cli.running import run

CODE_BYTES = 8


@pytest.fixture
def hundred(tmp_path: Path, suffix: str) -> Path:
    """A hundred records, in each format."""
    path = tmp_path / f"hundred{suffix}"
    with anyrecord.create(path) as out:
        out.write_many(b"record %d" % number for number in range(100))
    return path


def words(*numbers: int) -> list[str]:
    return [f"record {number}" for number in numbers]


# Any format


def test_every_verb_reads_every_format(hundred: Path) -> None:
    about = run("info", "--json", hundred).json
    assert (about["records"], about["file_bytes"]) == (100, hundred.stat().st_size)
    assert run("cat", "--newline", hundred).lines == words(*range(100))
    assert run("cat", hundred).data == b"".join(anyrecord.open(hundred))
    assert run("get", "--newline", hundred, "7", "-1", "3:5").lines == words(7, 99, 3, 4)
    assert [line["record"] for line in run("ls", "--json", hundred).jsons] == list(range(100))
    assert [line["kind"] for line in run("head", "--json", hundred).jsons] == ["text"] * 10
    assert run("cat", "--newline", "-", stdin=hundred.read_bytes()).lines == words(*range(100))


# info


def test_info_of_one_file(shards: str, tmp_path: Path) -> None:
    path = f"{tmp_path}/train-00000-of-00003.tfrecord"
    ran = run("info", path)
    assert ran.code == 0
    assert ran.lines[:3] == [path, "  format       tfrecord", "  records      10"]
    assert "index        none; opening reads the headers of all chunks" in ran.out
    (index,) = anyrecord.build_index(path)
    assert f"index        {index}" in run("info", path).out
    assert run("info", path, "--json").json["files"][0]["index"] == index


def test_info_of_many_files(shards: str, mixed: Path) -> None:
    ran = run("info", shards, mixed)
    assert ran.lines[0].split() == ["file", "format", "records", "chunks", "size", "codec"]
    assert len(ran.lines) == 6
    assert ran.lines[-1].startswith("4 files, mixed, 37 records, ")
    found = run("info", shards, mixed, "--json").json
    expected = anyrecord.info([shards, str(mixed)])
    names = ("format", "records", "chunks", "file_bytes", "record_bytes", "decoded_bytes", "ratio", "codec", "options")
    assert list(found) == [*names, "files"]
    assert [found[name] for name in names] == [getattr(expected, name) for name in names]
    for file, about in zip(found["files"], expected.files, strict=True):
        assert list(file) == ["path", *names, "index"]
        assert file["path"] == about.path


def test_info_of_a_range_and_of_an_empty_file(shards: str, tmp_path: Path) -> None:
    assert run("info", "--json", f"{tmp_path}/train-00000-of-00003.tfrecord[2:5]").json["records"] == 3
    with anyrecord.create(tmp_path / "empty.ffr"):
        pass
    ran = run("info", tmp_path / "empty.ffr")
    assert ran.code == 0
    assert "  records      0\n" in ran.out or "  records  0\n" in ran.out


# ls


def test_ls_lists_the_files_of_a_set(shards: str) -> None:
    paths = anyrecord.open(shards).paths
    assert run("ls", shards).lines == paths
    ran = run("ls", "-l", shards)
    assert ran.lines[0].split() == ["records", "size", "format", "file"]
    assert [line.split()[0] for line in ran.lines[1:]] == ["10"] * 3
    found = run("ls", "--json", shards).jsons
    assert [list(line) for line in found] == [["path", "format", "records", "file_bytes"]] * 3
    assert [line["path"] for line in found] == paths
    assert run("ls", "--files", paths[0]).lines == paths[:1]


def test_ls_lists_the_names_in_a_packed_folder(packed: Path) -> None:
    names = [*anyrecord.Folder(packed).list(recursive=True)]
    found = run("ls", "--json", packed).jsons
    assert [line["name"] for line in found] == names
    assert f"dogs/{HOSTILE}" in names
    assert {(line["name"], line["type"], line["size"]) for line in found} >= {
        ("cat.txt", "file", 5),
        ("dogs", "folder", None),
    }
    plain = run("ls", packed).lines
    assert r"dogs/evil\x1b[31m\n\u202e\x07.txt" in plain
    assert "dogs/" in plain
    assert run("ls", "-l", packed).lines[0].split()[1:3] == ["5", "B"]
    assert run("ls", "--json", "-", stdin=packed.read_bytes()).jsons == found


def test_ls_lists_records(mixed: Path, packed: Path, shards: str) -> None:
    found = run("ls", "--json", mixed).jsons
    assert list(found[0]) == ["record", "size", "kind", "path", "chunk", "row"]
    assert [line["size"] for line in found] == [len(record) for record in RECORDS]
    assert [line["kind"] for line in found] == ["text", "json", "png", "bytes", "empty", "text", "pickle"]
    assert [line.split()[0] for line in run("ls", mixed).lines] == list("0123456")
    assert len(run("ls", "--records", packed).lines) == 4
    assert [line["record"] for line in run("ls", "--json", "-r", "25,-1,3:5", shards).jsons] == [25, 29, 3, 4]
    assert run("ls", "-r", "30", shards).code == 1
    assert run("ls", "-r", "3", "--names", shards).code == 2
    assert run("ls", "--names", mixed).code == 1


# head


def test_head_shows_what_records_are(mixed: Path) -> None:
    ran = run("head", mixed)
    assert ran.code == 0
    rows = [line.split(None, 4) for line in ran.lines]
    assert [row[3] for row in rows] == ["text", "json", "png", "bytes", "empty", "text", "pickle"]
    assert rows[0][4] == r"plain text\nof two lines"
    assert rows[1][4] == '{"label": 7}'
    assert "64" in rows[2][4]
    assert "48" in rows[2][4]
    assert "1b 5d 30" in rows[3][4]
    assert not {"\x1b", "\u202e"} & set(ran.out)


def test_head_takes_a_count_and_ranges(shards: str) -> None:
    assert [line["record"] for line in run("head", "--json", shards).jsons] == list(range(10))
    assert [line["record"] for line in run("head", "--json", "-n", "2", shards).jsons] == [0, 1]
    assert [line["record"] for line in run("head", "--json", "-r", "-12:", shards).jsons] == list(range(18, 30))
    assert [line["record"] for line in run("head", "--json", "-n", "2", "-r", "-3:", shards).jsons] == [27, 28]
    assert run("head", "-n", "0", shards) == (0, b"", "")
    assert run("head", "-n", "-1", shards).code == 2


def test_head_in_json_and_in_full(mixed: Path) -> None:
    found = run("head", "--json", mixed).jsons
    keys = ["record", "size", "kind", "path", "chunk", "row", "summary", "details"]
    assert [list(line) for line in found] == [keys] * len(RECORDS)
    assert found[2]["details"]["width"] == 64
    ran = run("head", "-l", mixed)
    assert "record 2  33 B  png" in ran.lines
    assert "width" in ran.out
    assert "\x1b" not in ran.out


# cat


def test_cat_separates_records_in_every_way(mixed: Path) -> None:
    assert run("cat", mixed).data == b"".join(RECORDS)
    assert run("cat", "--newline", mixed).data == b"".join(record + b"\n" for record in RECORDS)
    assert run("cat", "-0", mixed).data == b"".join(record + b"\0" for record in RECORDS)
    prefixed = b"".join(len(record).to_bytes(CODE_BYTES, "little") + record for record in RECORDS)
    assert run("cat", "--length-prefixed", mixed).data == prefixed
    found = run("cat", "--json", mixed).jsons
    assert [list(line) for line in found] == [["record", "size", "data"]] * len(RECORDS)
    assert [base64.b64decode(line["data"]) for line in found] == RECORDS
    assert [(line["record"], line["size"]) for line in found] == list(enumerate(map(len, RECORDS)))


def numbers(*arguments: Any) -> list[int]:
    ran = run("cat", "--json", *arguments)
    assert ran.code == 0, ran.err
    for line in ran.jsons:  # the number of each is what the record says
        assert base64.b64decode(line["data"]) == b"%d" % line["record"]
    return [line["record"] for line in ran.jsons]


def test_cat_in_any_order(shards: str) -> None:
    assert numbers(shards) == list(range(30))
    assert numbers("-r", "5,28:,:2", shards) == [5, 28, 29, 0, 1]
    assert numbers("-r", "::-10", shards) == [29, 19, 9]
    assert numbers("--reverse", shards) == list(range(29, -1, -1))
    assert numbers("--reverse", "-r", ":2", shards) == [29, 28]
    for epoch in (0, 3):
        shuffled = [int(record) for record in anyrecord.open(shards).shuffle(42, epoch)]
        assert numbers("--shuffle", "42", "--epoch", str(epoch), shards) == shuffled
        assert numbers("--shuffle", "42", "--epoch", str(epoch), "-r", "4:9", shards) == shuffled[4:9]
        assert numbers("--shuffle", "42", "--epoch", str(epoch), "--reverse", shards) == shuffled[::-1]


def test_many_sources_are_one_sequence(shards: str, tmp_path: Path) -> None:
    first, _, last = anyrecord.open(shards).paths
    assert run("cat", "--newline", last, f"{first}[8:]").lines == [*map(str, range(20, 30)), "8", "9"]
    assert run("cat", "--newline", f"{tmp_path}/train-*").lines == [*map(str, range(30))]
    assert run("cat", "--newline", tmp_path).lines == [*map(str, range(30))]
    os.unlink(first)
    ran = run("cat", f"{tmp_path}/train-*")
    assert ran.code == 3
    assert "train-00000-of-00003" in ran.err
    ran = run("cat", "-", last)
    assert ran.code == 2
    assert "standard input" in ran.err


def test_the_number_of_records_can_be_demanded(shards: str) -> None:
    assert run("cat", "--expected-records", "30", shards).code == 0
    ran = run("cat", "--expected-records", "31", shards)
    assert (ran.code, ran.out) == (1, "")
    assert "expected 31, found 30" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epoch", "3"], "--epoch needs --shuffle SEED"),
        (["--shuffle", "-5"], "--shuffle -5 is not valid"),
        (["--shuffle", "1", "--epoch", "-1"], "--epoch -1 is not valid"),
        (["--max-errors", "3"], "--max-errors needs --on-error skip or --on-error replace"),
        (["--threads", "5000"], "--threads 5000 is not valid"),
        (["--cache-folder-bytes", "1GiB"], "--cache-folder-bytes needs --cache"),
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(shards: str, arguments: list[str], message: str) -> None:
    ran = run("cat", shards, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_numbers_can_be_as_large_as_they_like(shards: str) -> None:
    huge = "9" * 30
    assert len(run("cat", "--newline", "-r", f"0:{huge}", shards).lines) == 30
    assert len(run("head", "-n", huge, shards).lines) == 30
    assert run("cat", "-r", huge, shards).code == 1


# Damage


def test_damage_ends_reading_with_exit_code_1(damaged: Path) -> None:
    ran = run("cat", "--newline", damaged)
    assert ran.code == 1
    assert ran.err.startswith("error: sample checksum mismatch in ")
    error = run("cat", "--json", damaged).error
    assert (error["type"], error["path"], error["record"]) == ("ChecksumError", str(damaged), 3)
    assert run("get", damaged, "3").code == 1
    assert run("get", damaged, "4").data == b"record 4"
    assert run("cat", "--no-checksums", damaged).code == 0


@pytest.mark.parametrize("format", [None, "array_record", "ffrecord", "riegeli"])
def test_nothing_can_be_saved_from_an_empty_input(damaged: Path, format: str | None) -> None:
    options = [] if format is None else ["--format", format]
    ran = run("head", "-", *options, stdin=b"")
    assert ran.code == 1
    assert ran.err.startswith("error: ")
    assert "salvage" not in ran.err
    assert "'anyrecord salvage' saves" in run("head", "-", *options, stdin=damaged.read_bytes()[:9]).err


def test_rows_before_the_damage_are_shown(damaged: Path) -> None:
    for verb in ("head", "ls"):
        ran = run(verb, damaged)
        assert ran.code == 1
        assert [line.split()[0] for line in ran.lines] == ["0", "1", "2"]


def test_damaged_records_can_be_left_out_or_replaced(damaged: Path) -> None:
    ran = run("cat", "--newline", "--on-error", "skip", damaged)
    assert ran.code == 1
    assert ran.lines == words(0, 1, 2, 4, 5, 6, 7, 8, 9)
    warning, note = ran.err.splitlines()
    assert warning.startswith(f"warning: record 3 of {damaged} is damaged and was left out")
    assert note == "1 damaged record was left out"
    warning, note = run("cat", "--on-error", "replace", damaged).err.splitlines()
    assert warning.startswith(f"warning: record 3 of {damaged} is damaged and was replaced")
    assert note == "1 damaged record was replaced"
    ran = run("cat", "--json", "--on-error", "skip", damaged)
    assert [line["record"] for line in ran.jsons] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert json.loads(ran.err)["warning"]["type"] == "DamageWarning"
    ran = run("cat", "--newline", "--on-error", "replace", "--quiet", damaged)
    assert (ran.code, ran.err) == (1, "")
    assert ran.lines == words(0, 1, 2, 4, 4, 5, 6, 7, 8, 9)
    assert run("cat", "--on-error", "skip", "--max-errors", "0", damaged).code == 1
    assert [line["record"] for line in run("ls", "--json", "--on-error", "skip", damaged).jsons] == [
        *range(3),
        *range(4, 10),
    ]


# get


def test_get_by_number(shards: str) -> None:
    assert run("get", shards, "12").data == b"12"
    assert run("get", "--newline", shards, "12", "-1", "-3:-1", "0,5").lines == ["12", "29", "27", "28", "0", "5"]
    ran = run("get", shards, "1", "30")
    assert ran == (1, b"", "error: there is no record 30: there are 30 records, from 0 to 29\n")
    assert run("get", shards, "-31", "--json").error["type"] == "IndexError"
    assert run("get", shards, "--colour").code == 2
    assert run("get", shards, "cat.txt").code == 2
    assert run("get", shards).code == 2


def test_get_by_name(packed: Path) -> None:
    assert run("get", packed, "cat.txt").data == b"a cat"
    assert run("get", packed, "--names", "7").data == b"seven"
    assert run("get", packed, f"dogs/{HOSTILE}").data == b"evil"
    ran = run("get", packed, "dogs")
    assert ran.code == 1
    assert "'dogs' is a folder" in ran.err
    assert run("get", packed, "../cat.txt").code == 1


def test_get_writes_files(mixed: Path, packed: Path, tmp_path: Path) -> None:
    ran = run("get", mixed, "0:4", "-o", f"{tmp_path}/r-{{record:03}}.{{ext}}")
    assert [os.path.basename(line) for line in ran.lines] == ["r-000.txt", "r-001.json", "r-002.png", "r-003.bin"]
    assert [Path(line).read_bytes() for line in ran.lines] == RECORDS[:4]
    again = run("get", mixed, "0", "-o", f"{tmp_path}/r-{{record:03}}.{{ext}}")
    assert again.code == 3
    assert "exists already; --overwrite replaces it" in again.err
    (tmp_path / "r-000.txt").write_bytes(b"old")
    assert run("get", mixed, "0", "--overwrite", "-o", f"{tmp_path}/r-{{record:03}}.{{ext}}").code == 0
    assert (tmp_path / "r-000.txt").read_bytes() == RECORDS[0]
    (tmp_path / "new").mkdir()
    ran = run("get", packed, "cat.txt", "0", "--json", "-o", tmp_path / "new")
    assert [line["path"] for line in ran.jsons] == [f"{tmp_path}/new/cat.txt", f"{tmp_path}/new/0.txt"]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")], "nothing temporary is left"


def test_an_interrupt_leaves_no_part_of_a_file(mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = sorted(os.listdir(tmp_path))
    for name in ("chmod", "link"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, interrupt)
            ran = run("get", mixed, "0", "-o", tmp_path / "new")
        assert (ran.code, ran.out, ran.err) == (130, "", "error: interrupted\n")
        assert sorted(os.listdir(tmp_path)) == before


def test_files_are_written_where_there_are_no_links(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert run("get", mixed, "0", "-o", tmp_path / "new").code == 0
    assert (tmp_path / "new").read_bytes() == RECORDS[0]
    assert run("get", mixed, "1", "-o", tmp_path / "new").code == 3
    assert (tmp_path / "new").read_bytes() == RECORDS[0]


@pytest.mark.parametrize(
    ("pattern", "code", "message"),
    [
        ("one", 2, "several records"),
        ("{colour}{record}", 2, "no field {colour}"),
        ("{record.__class__}", 2, "several records"),
        ("{name}", 2, "only records have that are given by name"),
        ("missing/{record}", 3, "the folder 'missing' does not exist"),
    ],
)
def test_get_refuses_a_wrong_pattern(mixed: Path, tmp_path: Path, pattern: str, code: int, message: str) -> None:
    before = sorted(os.listdir(tmp_path))
    ran = run("get", mixed, "0", "1", "-o", pattern)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert sorted(os.listdir(tmp_path)) == before
