"""What Python does at its start when `ANYRECORD_COMPAT` is set: in a new virtual environment with our `.pth` file."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import anyrecord
import pytest

PTH = Path(__file__).parents[2] / "anyrecord.data" / "purelib" / "anyrecord_compat.pth"
PACKAGES = Path(anyrecord.__file__).parents[1]

MISSPELT = (
    "ANYRECORD_COMPAT={}: anyrecord.compat has no replacement for {!r}; "
    "use array_record, ffrecord or recordio, separated by commas, or unset ANYRECORD_COMPAT\n"
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that has anyrecord and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=os.name != "nt")
    (folder_of_packages(folder) / PTH.name).write_text(PTH.read_text())
    (folder_of_packages(folder) / "anyrecord.pth").write_text(f"{PACKAGES}\n")
    return folder


def folder_of_packages(environment: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    parts = ("Lib", "site-packages") if os.name == "nt" else ("lib", version, "site-packages")
    return environment.joinpath(*parts)


def start(environment: Path, variable: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    program = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        [program, *(arguments or ("-c", "print('the program runs')"))],
        env=inherited | {"ANYRECORD_COMPAT": variable} | more,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("value", ["", ",", "array_record", "array_record, ffrecord,recordio"])
def test_names_of_originals_let_the_program_run(environment: Path, value: str) -> None:
    done = start(environment, value)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the program runs\n", "")


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("arrayrecord", "arrayrecord"),
        ("array-record", "array-record"),
        ("Array_Record", "Array_Record"),
        ("array_record,tfrecord", "tfrecord"),
        ("ffrecord;recordio", "ffrecord;recordio"),
        ("1", "1"),
    ],
)
def test_a_misspelt_name_stops_python_with_one_line(environment: Path, value: str, wrong: str) -> None:
    done = start(environment, value)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", MISSPELT.format(value, wrong))


@pytest.mark.parametrize("arguments", [("-m", "pip", "uninstall", "anyrecord"), ("-I", "-c", "0"), ("program.py",)])
def test_every_way_to_start_python_stops_alike(environment: Path, arguments: tuple[str, ...]) -> None:
    done = start(environment, "x", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", MISSPELT.format("x", "x"))


def test_the_line_is_one_line_whatever_the_value_has_in_it(environment: Path) -> None:
    done = start(environment, "array\nrecord")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("ANYRECORD_COMPAT=array record: ")


def test_without_site_nothing_is_installed_and_nothing_stops(environment: Path) -> None:
    assert start(environment, "x", "-S", "-c", "print('on')").stdout == "on\n"


def test_python_dash_m_stops_alike_where_the_pth_file_is_not_installed(environment: Path) -> None:
    done = start(environment, "x", "-S", "-m", "anyrecord.compat", "train.py", PYTHONPATH=str(PACKAGES))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", MISSPELT.format("x", "x"))


@pytest.mark.parametrize(
    "text", ["raise ImportError('libc.so.6:\\n version not found')", "import anyrecord.gone", "1 / 0", "syntax error"]
)
def test_an_anyrecord_that_cannot_be_imported_stops_python_with_one_line(
    environment: Path, tmp_path: Path, text: str
) -> None:
    (tmp_path / "anyrecord").mkdir()
    (tmp_path / "anyrecord" / "__init__.py").write_text(text)
    done = start(environment, "array_record", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("ANYRECORD_COMPAT=array_record: anyrecord cannot be imported (")
    assert done.stderr.endswith("); install it again, or unset ANYRECORD_COMPAT\n")
    assert start(environment, "", PYTHONPATH=str(tmp_path)).returncode == 0


def test_an_original_that_is_imported_before_us_stops_python_with_one_line(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "recordio.py").write_text("")
    early = folder_of_packages(environment) / "aaa.pth"
    early.write_text("import recordio\n")
    try:
        done = start(environment, "recordio", PYTHONPATH=str(tmp_path))
    finally:
        early.unlink()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("recordio is already imported (recordio), ")
    assert len(done.stderr.splitlines()) == 1


def test_children_stop_alike(environment: Path) -> None:
    child = "subprocess.call([sys.executable, '-c', '0'])"
    program = f"import os, subprocess, sys; os.environ['ANYRECORD_COMPAT'] = 'x'; sys.exit({child})"
    done = start(environment, "ffrecord", "-c", program)
    assert (done.returncode, done.stderr) == (1, MISSPELT.format("x", "x"))
