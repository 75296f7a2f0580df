"""`anyrecord verify`: every file is reported, the summary says what to run next, and the exit code tells the rest."""

from __future__ import annotations

import json
import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyrecord
import pytest

from cli.files import RECORDS, break_record, make, names
from cli.running import on_terminal, run, run_apart


def test_a_good_file_is_good(suffix: str) -> None:
    make(f"a{suffix}")
    ran = run("verify", f"a{suffix}")
    assert (ran.code, ran.err) == (0, "")
    (line,) = ran.lines
    assert line.startswith(f"good        a{suffix}  ")
    assert "100 records" in line


def test_it_goes_on_after_a_bad_file_and_ends_with_what_to_run() -> None:
    make("a.tfrecord")
    break_record(make("b.tfrecord"))
    make("z.tfrecord")
    ran = run("verify", "a.tfrecord", "b.tfrecord", "missing.ffr", "z.tfrecord")
    assert ran.code == 1
    assert [line.split()[:2] for line in ran.lines if line[0].islower()] == [
        ["good", "a.tfrecord"],
        ["damaged", "b.tfrecord"],
        ["unreadable", "missing.ffr"],
        ["good", "z.tfrecord"],
    ]
    assert "  ChecksumError: record data checksum mismatch in b.tfrecord" in ran.out
    assert "4 files: 2 good, 1 damaged, 1 unreadable; 299 records" in ran.out
    assert ran.lines[-1] == "  anyrecord salvage b.tfrecord b-salvaged.tfrecord"


def test_the_command_that_it_names_works() -> None:
    for name in ("it's.ffr", "odd name.bin"):
        break_record(make(name, format="ffrecord"))
        command = shlex.split(run("verify", name).lines[-1])
        assert command[:2] == ["anyrecord", "salvage"]
        assert run(*command[1:]).code == 1
        assert list(anyrecord.open(command[3])) == RECORDS[:7] + RECORDS[8:]
    for number in range(3):
        break_record(make(f"{number}.ffr"))
    command = shlex.split(run("verify", "[0-9].ffr").lines[-1])
    assert run(*command[1:]).code == 1
    assert names("salvaged") == ["0.ffr", "1.ffr", "2.ffr"]


@pytest.mark.parametrize(
    ("sources", "code"),
    [
        (["good.ffr"], 0),
        (["bad.ffr"], 1),
        (["missing.ffr"], 3),
        (["bad.ffr", "missing.ffr"], 1),
        (["missing.ffr", "good.ffr"], 3),
        (["empty.ffr"], 1),
        (["nothing-*.ffr"], 3),
        (["ftp://host/a.ffr"], 2),
        (["good.ffr", "-"], 2),
        ([], 2),
    ],
)
def test_exit_codes(sources: list[str], code: int) -> None:
    make("good.ffr")
    break_record(make("bad.ffr"))
    Path("empty.ffr").touch()
    assert run("verify", *sources).code == code
    assert run("verify", "--json", *sources).code == code


def test_json_has_all_figures() -> None:
    make("a.tfrecord")
    break_record(make("b.tfrecord"))
    ran = run("verify", "--json", "a.tfrecord", "b.tfrecord", "c.tfrecord")
    told = json.loads(ran.out)
    assert {key: told[key] for key in ("ok", "good", "damaged", "unreadable", "records")} == {
        "ok": False,
        "good": 1,
        "damaged": 1,
        "unreadable": 1,
        "records": 199,
    }
    good, bad, missing = told["files"]
    report = anyrecord.verify("b.tfrecord")
    assert (good["status"], good["problems"], good["error"]) == ("good", [], None)
    assert bad["status"] == "damaged"
    for name in ("format", "records", "file_bytes", "record_bytes", "meta_bytes", "damaged_bytes", "problem_count"):
        assert bad[name] == getattr(report, name)
    (problem,) = bad["problems"]
    assert (problem["type"], problem["record"]) == ("ChecksumError", 7)
    assert (problem["begin"], problem["end"]) == report.damaged[0][1:]
    assert (missing["status"], missing["records"], missing["error"]["type"]) == (
        "unreadable",
        None,
        "FileNotFoundError",
    )
    assert told["next"] == ["anyrecord salvage b.tfrecord b-salvaged.tfrecord"]


def test_standard_input_can_be_verified() -> None:
    data = Path(break_record(make("a.tfrecord"))).read_bytes()
    for ran in (run("verify", "-", stdin=data), run_apart("verify", "-", stdin=data)):
        assert ran.code == 1
        assert "in <stdin> at byte" in ran.out
        assert ran.lines[-1] == "  anyrecord salvage BAD GOOD"


def test_the_expected_number_of_records_finds_a_clean_cut() -> None:
    make("a.tfrecord")
    os.truncate("a.tfrecord", os.path.getsize("a.tfrecord") - len(RECORDS[-1]) - 16)
    assert run("verify", "a.tfrecord").code == 0, "the format cannot tell"
    ran = run("verify", "a.tfrecord", "--expected-records", "100")
    assert (ran.code, ran.lines[-1]) == (1, "wrong number of records: expected 100, found 99")
    told = json.loads(run("verify", "--json", "a.tfrecord", "--expected-records", "100").out)
    assert (told["ok"], told["wrong_number"]) == (False, "wrong number of records: expected 100, found 99")
    assert run("verify", "a.tfrecord", "--expected-records", "99").code == 0


def test_only_some_problems_of_a_file_are_shown() -> None:
    make("a.tfrecord")
    for record in RECORDS[10:30]:
        break_record("a.tfrecord", record)
    ran = run("verify", "a.tfrecord")
    assert ran.out.count("ChecksumError") == 5
    assert "  15 more problems" in ran.lines
    ran = run("verify", "a.tfrecord", "--problems", "0")
    assert ran.out.count("ChecksumError") == 0
    assert "  20 problems" in ran.lines
    assert len(json.loads(run("verify", "--json", "a.tfrecord").out)["files"][0]["problems"]) == 20


def test_quiet_shows_only_bad_files() -> None:
    make("a.ffr")
    break_record(make("b.ffr"))
    lines = run("verify", "--quiet", "a.ffr", "b.ffr").lines
    assert lines[0].startswith("damaged     b.ffr")
    assert not any("a.ffr" in line for line in lines)


def test_a_name_with_control_characters_reaches_no_terminal_raw() -> None:
    name = "a\x1b[31m\n\u202e.ffr"
    break_record(make(name))
    ran = run("verify", name)
    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out
    assert ran.lines[0].startswith("damaged     a\\x1b[31m\\n\\u202e.ffr")
    assert ran.lines[-1] == "  anyrecord salvage BAD GOOD"
    assert json.loads(run("verify", "--json", name).out)["files"][0]["path"] == name


def test_a_url_is_shown_without_its_secrets() -> None:
    ran = run("verify", "http://me:secret@127.0.0.1:1/a.ffr?key=secret", "--storage", "retry_timeout=1ms")
    assert ran.code == 3
    assert "secret" not in ran.out + ran.err


def test_results_appear_above_the_bar_on_a_terminal() -> None:
    make("a.ffr")
    break_record(make("b.ffr"))
    code, shown = on_terminal("verify", "a.ffr", "b.ffr")
    assert code == 1
    assert "\x1b[32mgood" in shown
    for result in ("good", "damaged"):
        since_bar = shown.partition(result)[0].rpartition("verifying")[2]
        assert "\x1b[2K" in since_bar, "the bar was taken away before"
    assert "verifying" in shown
    code, shown = on_terminal("verify", "--quiet", "a.ffr")
    assert (code, shown) == (0, "")


def test_a_named_pipe_can_be_verified() -> None:
    data = Path(break_record(make("a.tfrecord"))).read_bytes()
    os.mkfifo("pipe")
    with ThreadPoolExecutor(1) as writer:
        written = writer.submit(Path("pipe").write_bytes, data)
        ran = run("verify", "pipe")
        assert written.result() == len(data)
    assert ran.code == 1
    assert ran.lines[0].startswith("damaged     pipe  tfrecord, 99 records")
