"""The walk of the README: a reader types what is there into a shell, and sees what is printed there.

Nothing is downloaded. The environment is a new one of `python -m venv`, and pip may use no index. What the README
installs beside the wheel (click, rich, torch, numpy, pillow) is in the environment of the tests. PYTHONPATH names a
folder of links to these packages, so that pip finds them there. It has no anyrecord, which comes from the wheel alone.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from children import LIMIT_SECONDS

pytestmark = pytest.mark.framework

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## Try everything once\n(.*?)^## ", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "-- a command has ended:"


class Command(NamedTuple):
    """What is typed, and what the README says that it prints."""

    text: str
    expected: str


def walk() -> tuple[dict[str, str], list[Command]]:
    """The programs of the walk by their names, and its commands in order."""
    section = SECTION.search((ROOT / "README.md").read_text())
    assert section, "the README has no walk"
    programs: dict[str, str] = {}
    commands: list[Command] = []
    for language, code in BLOCK.findall(section[1]):
        first, _, rest = code.partition("\n")
        if language == "python":
            programs[first.removeprefix("# ")] = rest
            continue
        for line in code.splitlines(keepends=True):
            if line.startswith("$ "):
                commands.append(Command(line[2:].rstrip("\n"), ""))
            else:
                commands[-1] = Command(commands[-1].text, commands[-1].expected + line)
    return programs, commands


def current_wheel() -> Path:
    """The wheel that `make` has built from these very sources."""
    wheels = sorted((ROOT / "target" / "wheels").glob("anyrecord-*.whl"))
    assert len(wheels) == 1, f"{len(wheels)} wheels in target/wheels; `make wheel` builds the one that is needed"
    with zipfile.ZipFile(wheels[0]) as wheel:
        packed = {name: wheel.read(name) for name in wheel.namelist() if name.endswith(".py")}
    sources = ROOT / "python"
    here = {path.relative_to(sources).as_posix(): path.read_bytes() for path in sources.rglob("*.py")}
    stale = sorted(name for name in packed.keys() | here.keys() if packed.get(name) != here.get(name))
    assert not stale, f"the wheel is not built from these sources ({', '.join(stale[:5])}); run `make wheel`"
    return wheels[0]


def prepare(folder: Path, wheel: Path) -> dict[str, str]:
    """Makes what a reader has: Python, the wheel, and packages to install. Returns the environment of the shell."""
    libraries = folder / "libraries"
    libraries.mkdir()
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if not installed.name.lower().startswith(("anyrecord", "pip")) and installed.suffix != ".pth":
            (libraries / installed.name).symlink_to(installed)
    programs = folder / "programs"
    programs.mkdir()
    python = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    (programs / "python3").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    (programs / "python3").chmod(0o755)
    wheels = folder / "walk" / "target" / "wheels"
    wheels.mkdir(parents=True)
    (wheels / wheel.name).symlink_to(wheel)
    return {
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "PATH": f"{programs}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INDEX": "1",
        "PYTHONPATH": str(libraries),
    }


def typed(commands: list[str], folder: Path, environment: dict[str, str]) -> list[tuple[str, int]]:
    """Types commands into one shell. Returns what each has printed, and its exit code."""
    script = "".join(f"{{ {command}\n}} </dev/null 2>&1\necho '{MARK}' $?\n" for command in commands)
    ran = subprocess.run(
        ["bash", "--norc", "-s"],
        input=script,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
        timeout=5 * LIMIT_SECONDS,
        check=True,
    )
    ends = re.findall(rf"(.*?){MARK} (\d+)\n", ran.stdout, re.DOTALL)
    assert len(ends) == len(commands), ran.stdout
    return [(printed, int(code)) for printed, code in ends]


def test_the_walk_of_the_readme_prints_what_the_readme_shows(tmp_path: Path) -> None:
    programs, commands = walk()
    environment = prepare(tmp_path, current_wheel())
    for name, code in programs.items():
        (tmp_path / "walk" / name).write_text(code)
    before = 'python3 -c "import anyrecord"'
    after = 'python -c "import anyrecord; print(anyrecord.__file__)"'
    lines = [before, *(command.text for command in commands), after]
    missing, *ran, (used, _) = typed(lines, tmp_path / "walk", environment)
    assert "No module named 'anyrecord'" in missing[0]
    assert Path(used.strip()).is_relative_to(tmp_path / "walk" / "env")
    checker = doctest.OutputChecker()
    for command, (printed, status) in zip(commands, ran, strict=True):
        shown = f"$ {command.text}\n{printed}"
        assert status == 0, shown
        assert checker.check_output(command.expected, printed, doctest.ELLIPSIS), (
            f"{shown}\nREADME:\n{command.expected}"
        )


def test_the_walk_has_every_step_in_order() -> None:
    programs, commands = walk()
    assert "from anyrecord.torch import" in programs["train.py"]
    left = iter(command.text for command in commands)
    for step in ("-m venv", ".whl", "pack ", "head ", "train.py", "convert ", "dd ", "verify ", "salvage "):
        assert any(step in text for text in left), f"{step} is missing, or comes too early"
