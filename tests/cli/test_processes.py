"""Pipes, terminals and signals: what only a process of its own shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyrecord
import pytest
from children import LIMIT_SECONDS

from cli.running import COMMAND, environment, on_terminal, run_apart


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """More than a pipe holds."""
    path = tmp_path / "large.ffr"
    with anyrecord.create(path, durable=False) as out:
        out.write_many(b"%0999d\n" % number for number in range(5000))
    return path


def test_a_reader_that_goes_away_is_no_error(large: Path) -> None:
    for verb in ("cat", "ls", "head"):
        command = [*COMMAND, verb, large, *(["-n", "5000"] if verb == "head" else [])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            assert child.stdout.readline()
            child.stdout.close()
            assert child.stderr.read() == b""
            assert child.wait(LIMIT_SECONDS) == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a system without /dev/full")
def test_a_full_disk_is_an_error(mixed: Path) -> None:
    for verb in ("info", "cat", "head"):
        with open("/dev/full", "wb") as full:
            ran = subprocess.run(
                [*COMMAND, verb, mixed], stdout=full, stderr=subprocess.PIPE, timeout=LIMIT_SECONDS, check=False
            )
        assert ran.returncode == 3
        assert ran.stderr.decode() == "error: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_with_its_exit_code(large: Path, number: signal.Signals, code: int) -> None:
    # Its output is not read to the end, so it is still at work.
    command = [*COMMAND, "cat", str(large)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.read(1)
        child.send_signal(number)
        child.stdout.read()
        error = child.stderr.read().decode()
        assert child.wait(LIMIT_SECONDS) == code
    name = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    assert error == f"error: {name}\n"


def test_standard_input_can_be_a_pipe_or_a_file(mixed: Path) -> None:
    assert run_apart("info", "-", stdin=mixed.read_bytes()).out.startswith("<stdin>\n  format       array_record\n")
    with mixed.open("rb") as file:
        command = [*COMMAND, "info", "--json", "-"]
        ran = subprocess.run(command, stdin=file, capture_output=True, timeout=LIMIT_SECONDS, check=True)
    assert b'"records": 7' in ran.stdout


def test_a_named_pipe_is_read_like_standard_input(mixed: Path, tmp_path: Path) -> None:
    script = '"$0" -m anyrecord cat <(cat "$1")'
    command = ["bash", "-c", script, sys.executable, str(mixed)]
    ran = subprocess.run(command, capture_output=True, timeout=LIMIT_SECONDS, check=True)
    assert ran.stdout == b"".join(anyrecord.open(mixed))


def test_the_help_can_be_cut_off(tmp_path: Path) -> None:
    for arguments in ("--help", "info --help", "completion bash"):
        script = f'"$0" -m anyrecord {arguments} | true; echo "${{PIPESTATUS[0]}}"'
        ran = subprocess.run(
            ["bash", "-c", script, sys.executable], capture_output=True, timeout=LIMIT_SECONDS, check=True
        )
        # It may have ended before the reader did.
        assert ran.stdout.strip() in (b"141", b"0")
        assert ran.stderr == b""


def test_another_encoding_of_standard_output_is_no_problem(mixed: Path) -> None:
    ran = run_apart("head", mixed, env=environment(PYTHONIOENCODING="ascii", LC_ALL="C"))
    assert ran.code == 0
    assert ran.data.isascii()


# Terminals


def test_colours_are_only_on_a_terminal(mixed: Path) -> None:
    for verb in ("info", "head", "ls", "--help"):
        arguments = [verb] if verb == "--help" else [verb, str(mixed)]
        code, shown = on_terminal(*arguments)
        assert code == 0
        assert "\x1b[" in shown
        assert b"\x1b" not in run_apart(*arguments).data
        assert b"\x1b" not in run_apart(*arguments, env=environment(FORCE_COLOR="1", TERM="xterm")).data
        for plain in (environment(TERM="xterm-256color", NO_COLOR="1"), environment(TERM="dumb")):
            assert "\x1b" not in on_terminal(*arguments, env=plain)[1]


def test_nothing_of_a_record_reaches_the_terminal_raw(mixed: Path) -> None:
    plain = environment(TERM="xterm-256color", NO_COLOR="1")
    for arguments in (["cat"], ["head"], ["head", "-l"], ["ls", "-l"], ["cat", "-0"], ["cat", "--length-prefixed"]):
        code, shown = on_terminal(*arguments, mixed, env=plain)
        assert code == 0
        assert not {"\x1b", "\x07", "\0", "\u202e", "\r"} & set(shown)
    assert "\\x1b]0;owned\\x07\\x1b[2J\n" in on_terminal("cat", mixed, env=plain)[1]
    assert "\\x1b]0;owned" in on_terminal("get", mixed, "3", env=plain)[1]


def test_lines_fit_the_terminal(mixed: Path, shards: str, packed: Path) -> None:
    plain = environment(TERM="xterm-256color", NO_COLOR="1")
    long = b'{"text": "%s"}' % (b"word " * 100)
    path = mixed.parent / "long.ffr"
    with anyrecord.create(path) as out:
        out.write_many([long, long[1:-1]])
    for arguments in (["head", path], ["head", "-l", path], ["info", mixed], ["info", shards], ["doctor", path]):
        for columns in (80, 60):
            code, shown = on_terminal(*arguments, columns=columns, env=plain)
            assert code == 0
            words = [line for line in shown.splitlines() if len(line) > columns and str(mixed.parent) not in line]
            assert words == []


def test_a_progress_bar_is_on_a_terminal_only(large: Path, tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as target:
        code, shown = on_terminal("cat", large, stdout=target)
    assert code == 0
    assert "writing" in shown
    assert "5000/5000" in shown or "%" in shown
    assert (tmp_path / "out").read_bytes() == b"".join(anyrecord.open(large))
    for arguments in (["--quiet"], ["--json"]):
        with open(tmp_path / "out", "wb") as target:
            assert on_terminal("cat", large, *arguments, stdout=target) == (0, "")
    assert run_apart("cat", large).err == ""


def test_an_error_on_a_terminal_is_coloured_and_clean(tmp_path: Path) -> None:
    code, shown = on_terminal("info", tmp_path / "evil\x1b]0;owned\x07")
    assert code == 3
    assert shown.startswith("\x1b[31m\x1b[1merror:\x1b[0m")
    # Lines break between words, never within a path.
    assert "evil\\x1b]0;owned\\x07: No such file" in " ".join(shown.split())


def test_standard_input_that_is_a_terminal_is_refused() -> None:
    code, shown = on_terminal("info", "-")
    assert code == 2
    assert "which is a terminal" in shown
