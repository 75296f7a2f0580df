"""What all verbs share: help, exit codes, errors, JSON, and what is imported."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import anyrecord
import click
import pytest
from anyrecord.cli import _errors
from anyrecord.cli._output import clean
from anyrecord.cli._params import RANGES, SIZE
from anyrecord.cli._verb import Verb
from anyrecord.cli._verbs import VERBS
from children import python

from cli.running import environment, run, run_apart

ROOT = Path(__file__).parent.parent.parent


def test_the_command_is_installed_as_a_script() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert 'anyrecord = "anyrecord.cli:main"' in text
    assert re.search(r'^cli = \["click', text, re.MULTILINE)


def test_it_says_its_version() -> None:
    assert run("--version") == (0, f"anyrecord {anyrecord.__version__}\n".encode(), "")
    assert run_apart("--version").out == f"anyrecord {anyrecord.__version__}\n"


# Help


def test_the_help_lists_all_verbs() -> None:
    for arguments in (["--help"], ["-h"]):
        ran = run(*arguments)
        assert ran.code == 0
        for verb, line in VERBS.items():
            assert re.search(rf"^  {verb} +{re.escape(line)}$", ran.out, re.MULTILINE)


def test_without_a_verb_the_help_is_an_error() -> None:
    ran = run()
    assert (ran.code, ran.out) == (2, "")
    assert "Verbs:" in ran.err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_file_and_help_with_examples(verb: str) -> None:
    command = import_module(f"anyrecord.cli.{verb}").command
    assert isinstance(command, Verb)
    assert command.name == verb
    ran = run(verb, "--help")
    assert ran.code == 0
    first = (command.help or "").partition("\n")[0]
    assert VERBS[verb] == first, "the line in the list of verbs"
    examples = ran.out.partition("\nExamples:\n")[2].splitlines()
    assert examples
    assert any(f"anyrecord {verb} " in line or line.endswith(f"anyrecord {verb}") for line in examples)
    assert max(len(line) for line in ran.lines) <= 80
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} has no help"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_on_a_page(verb: str) -> None:
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").glob("cli*.md"))
    assert f"\n## {verb}\n" in pages


def test_a_wrong_verb_is_an_error_that_names_a_likely_one() -> None:
    ran = run("inof", "x")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: there is no verb 'inof'; did you mean 'info'?\n")
    assert "info, ls," in run("zzz").err


@pytest.mark.parametrize("arguments", [["info"], ["info", "--colour", "x"], ["info", "x", "--format", "parquet"]])
def test_wrong_usage_is_exit_code_2_and_one_message(arguments: list[str]) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(r"error: .*\nhint: 'anyrecord info --help' shows how to use it\n", ran.err)
    ran = run(*arguments, "--json")
    assert (ran.code, ran.out) == (2, "")
    assert ran.error["type"] == "UsageError"
    assert ran.error["exit_code"] == 2


def test_flags_of_all_verbs_can_come_before_the_verb(mixed: Path) -> None:
    assert run("--json", "info", mixed) == run("info", "--json", mixed)
    assert "Traceback" in run("--debug", "info", "missing").err
    assert run("-q", "--json").code == 2
    assert run("--json", "--help").code == 0


# Errors


def test_a_missing_file_is_exit_code_3(tmp_path: Path) -> None:
    path = tmp_path / "missing.ffr"
    ran = run("info", path)
    assert ran == (3, b"", f"error: {path}: No such file or directory\n")
    error = run("info", path, "--json").error
    assert error == {
        "type": "FileNotFoundError",
        "message": f"{path}: No such file or directory",
        "exit_code": 3,
        "path": str(path),
        **dict.fromkeys(("offset", "record", "expected", "found")),
        "hints": [],
    }


def test_a_file_that_is_no_record_file_is_exit_code_1(tmp_path: Path) -> None:
    path = tmp_path / "wrong.tfrecord"
    path.write_bytes(b"hello")
    ran = run("info", path)
    assert ran.code == 1
    assert ran.err.startswith(f"error: record header is truncated in {path}")
    assert ran.err.count("\n") == 2, "the error and a hint"
    error = run("info", path, "--json").error
    assert (error["type"], error["path"], error["offset"]) == ("TruncatedError", str(path), 0)
    assert error["hints"]


def test_a_traceback_is_shown_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" not in run("info", "missing.ffr").err
    assert "Traceback" in run("info", "missing.ffr", "--debug").err
    monkeypatch.setenv("ANYRECORD_DEBUG", "1")
    assert "Traceback" in run("info", "missing.ffr").err
    monkeypatch.setenv("ANYRECORD_DEBUG", "0")
    assert "Traceback" not in run("info", "missing.ffr").err


def test_messages_speak_the_words_of_the_command_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    ran = run("info", empty)
    assert "pass --format" in ran.err
    assert "format=" not in ran.err


def test_a_path_that_looks_like_an_option_is_told_as_it_is(tmp_path: Path) -> None:
    for name in ("seed=3/train.ffr", "shards=16", "format=ffrecord", "x/overwrite=True.ffr"):
        path = tmp_path / name
        assert str(path) in run("info", path).err
        assert name in run("info", name).err
        assert run("info", name, "--json").error["path"] == name


def test_options_of_a_store_are_told_as_options() -> None:
    text = """pass storage={"access_key_id": ..., "secret_access_key": ...} or storage={'skip_signature': True}"""
    expected = "pass --storage access_key_id=... --storage secret_access_key=... or --storage skip_signature=True"
    assert _errors.translated(text) == expected


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (anyrecord.ChecksumError("x"), 1),
        (anyrecord.LimitError("x"), 1),
        (IndexError("x"), 1),
        (ValueError("x"), 2),
        (TypeError("x"), 2),
        (PermissionError(13, "x"), 3),
        (anyrecord.PublishError("x"), 3),
        (MemoryError(), 3),
        (ImportError("x"), 4),
        (RuntimeError("x"), 5),
        (AssertionError("x"), 5),
    ],
)
def test_exit_codes_of_exceptions(error: Exception, code: int) -> None:
    assert _errors.exit_code(error) == code
    assert _errors.described(error)["exit_code"] == code
    page = (ROOT / "docs" / "cli.md").read_text()
    assert f"\n| {code} | " in page


def test_a_secret_in_a_url_is_not_told() -> None:
    ran = run("info", "http://me:secret@127.0.0.1:1/a.ffr?sig=secret", "--storage", "max_retries=0")
    assert ran.code in (1, 3)
    assert "secret" not in ran.err


# Hostile names


def test_control_characters_are_escaped() -> None:
    assert clean("a\x1b[31m\r\n\t\x7f\x9b\u202e\u2028\U000e0001") == (r"a\x1b[31m\r\n\t\x7f\x9b\u202e\u2028\U000e0001")
    assert clean("a\nb\tc\x1b", keep="\n\t") == "a\nb\tc\\x1b"
    assert clean("é 猫 🐈") == "é 猫 🐈"


def test_a_hostile_file_name_is_escaped_everywhere(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/evil\x1b[31m\n\xff.ffr"
    with anyrecord.create(os.fsdecode(path)) as out:
        out.write(b"x")
    shown = r"evil\x1b[31m\n\xff.ffr"
    name = os.fsdecode(path)
    for arguments in (["info", name], ["ls", "--files", name], ["ls", "-l", name], ["head", "-l", name]):
        ran = run(*arguments)
        assert ran.code == 0, ran.err
        assert shown in ran.out
        assert "\x1b" not in ran.out
    ran = run("info", f"{name}x")
    assert shown in ran.err
    assert "\x1b" not in ran.err
    assert run("info", "--json", name).json["files"][0]["path"] == name


# Values


def test_sizes() -> None:
    good = {"0": 0, "4096": 4096, "1k": 1024, "1KiB": 1024, "1 kb": 1000, "1.5M": 3 << 19, "2GB": 2 * 10**9}
    assert {text: SIZE.convert(text, None, None) for text in good} == good
    for text in ("", "x", "1X", "-1", "1e3", "\u0661"):
        with pytest.raises(click.BadParameter):
            SIZE.convert(text, None, None)


def test_ranges() -> None:
    good = {"7": (7,), "-1": (-1,), "2:": (slice(2, None),), ":": (slice(None),), "::-1": (slice(None, None, -1),)}
    assert {text: RANGES.convert(text, None, None) for text in good} == good
    assert RANGES.convert("1, 5:9:2", None, None) == (1, slice(5, 9, 2))
    for text in ("", "x", "1,", "1:2:0", "1:2:3:4", "--1", "1-2"):
        with pytest.raises(click.BadParameter):
            RANGES.convert(text, None, None)


def test_limits_are_passed_on(mixed: Path) -> None:
    assert run("cat", mixed, "--limit", "decoded_chunk_bytes=1GiB").code == 0
    ran = run("cat", mixed, "--limit", "decoded_chunk_bytes=1")
    assert ran.code == 1
    assert "decoded_chunk_bytes" in ran.err
    assert "the limits are decoded_chunk_bytes," in run("cat", mixed, "--limit", "colour=1").err
    assert run("cat", mixed, "--limit", "open_files=x").code == 2


# Imports


def test_without_the_extra_the_command_says_what_to_install() -> None:
    for missing in ("click", "rich"):
        script = f"""if True:
            import sys
            sys.modules[{missing!r}] = None
            from anyrecord.cli import main
            print(main(["info", "x"]), main(["--json"]))
        """
        command = [sys.executable, "-W", "error", "-c", script]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert ran.stdout.split() == ["4", "4"]
        text, json = ran.stderr.splitlines()
        assert text.endswith("pip install 'anyrecord[cli]'")
        assert ast.literal_eval(json)["error"]["exit_code"] == 4


def test_importing_anyrecord_loads_nothing_of_the_command_line() -> None:
    script = "import sys, anyrecord; print(*({'click', 'rich', 'anyrecord.cli'} & set(sys.modules)))"
    assert python(script).split() == []


def test_only_the_verb_that_runs_is_imported() -> None:
    script = """if True:
        import contextlib, io, sys
        from anyrecord.cli import main
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            code = main(sys.argv[1:])
        print(code, *(name for name in sys.modules if name.startswith(("anyrecord.cli.", "rich."))))
    """
    code, *loaded = python(script, "--help").split()
    verbs = {f"anyrecord.cli.{verb}" for verb in VERBS}
    assert (code, verbs & set(loaded)) == ("0", set())
    code, *loaded = python(script, "info", "--help").split()
    assert (code, verbs & set(loaded)) == ("0", {"anyrecord.cli.info"})
    assert "rich.console" not in loaded


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(shell: str) -> None:
    ran = run("completion", shell)
    assert ran.code == 0
    assert "_ANYRECORD_COMPLETE" in ran.out
    assert run("completion", shell, "--json").json == {"shell": shell, "script": ran.out}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("anyrecord in", {"plain,info"}),
        ("anyrecord info --form", {"plain,--format"}),
        ("anyrecord info --format ff", {"plain,ffrecord"}),
        ("anyrecord info tra", {"file,tra"}),
    ],
)
def test_verbs_options_values_and_files_are_completed(words: str, expected: set[str]) -> None:
    env = environment(_ANYRECORD_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    script = "import sys; from anyrecord.cli import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert expected <= set(ran.stdout.split())
