"""Installs a wheel into empty environments and tries it there: `python checks/wheel.py WHEEL --python 3.12 3.13`.

It checks how large the wheel is and what it contains, and runs the main things of every format. With `--tests`, it also
runs tests of the checkout against what was installed. It needs nothing but Python and pip, so a release can run it
on every system.
"""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MOST_BYTES = 8_000_000
"""A wheel may be this large. It was 6.5 MB when this was written."""
SUITES = ("conformance", "golden", "damage", "hostile", "index", "order", "paths", "salvage", "test_numbers.py")
"""What `--tests` runs: what does not depend on a framework, or on tools of the checkout."""

SMOKE = Path(__file__).with_name("wheel_smoke.py")


def check_wheel(wheel: Path) -> None:
    """How large it is, and what must and must not be in it."""
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{wheel.name} has {size:,} bytes; at most {MOST_BYTES:,} are allowed")
    names = zipfile.ZipFile(wheel).namelist()
    if not any(name.endswith("/anyrecord_compat.pth") for name in names):
        raise SystemExit(f"{wheel.name} has no anyrecord_compat.pth, so ANYRECORD_COMPAT would do nothing")
    for needed in ("anyrecord/py.typed", "anyrecord/_core.pyi"):
        if needed not in names:
            raise SystemExit(f"{wheel.name} has no {needed}")
    strange = [name for name in names if not name.startswith(("anyrecord/", "anyrecord-"))]
    if strange:
        raise SystemExit(f"{wheel.name} would install files outside of anyrecord: {strange}")
    print(f"{wheel.name}: {size / 1e6:.1f} MB, {len(names)} files")


def interpreter(version: str) -> str | None:
    """The program of a version such as 3.12: from the path, or from pyenv. None if it is not on this machine."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    for program in (*sorted(glob.glob(f"{root}/versions/{version}.*/bin/python")), shutil.which(f"python{version}")):
        if program and subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0:
            return program
    return None


def run(command: list[Any], **more: Any) -> None:
    """Runs a program; its failure is ours."""
    if subprocess.run([str(word) for word in command], check=False, **more).returncode:
        raise SystemExit(f"failed: {' '.join(map(str, command))}")


def try_wheel(wheel: Path, python: str, folder: Path, *, with_tests: bool) -> None:
    """Installs a wheel into a new environment in a folder, and runs it."""
    environment = folder / "environment"
    run([python, "-m", "venv", "--without-pip", environment])
    inside = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", inside, "install", "--quiet"]
    run([*pip, "--no-index", wheel])
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ANYRECORD_COMPAT")}
    run([inside, shutil.copy(SMOKE, folder)], cwd=folder, env=variables)
    if with_tests:
        wanted = ROOT / "requirements" / "dev.txt"
        run([*pip, "--constraint", wanted, "hypothesis", "numpy", "pytest"])
        suites = [f"tests/{suite}" for suite in SUITES]
        pytest = [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not framework"]
        run([*pytest, *suites], cwd=ROOT, env=variables)


def main() -> None:
    parser = argparse.ArgumentParser(prog="checks/wheel.py", description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--python", nargs="+", default=[here], metavar="VERSION", help="versions such as 3.12")
    parser.add_argument("--if-there", action="store_true", help="pass over versions that are not on this machine")
    parser.add_argument("--tests", action="store_true", help="run tests of the checkout, too; minutes")
    parser.add_argument("--only-look", action="store_true", help="install nothing, where the wheel cannot run")
    arguments = parser.parse_args()
    wheel = arguments.wheel.resolve()
    check_wheel(wheel)
    for version in [] if arguments.only_look else arguments.python:
        begin, python = time.monotonic(), interpreter(version)
        if python is None:
            missing = f"Python {version} is missing: install it, for instance with `pyenv install {version}`"
            if not arguments.if_there:
                raise SystemExit(missing)
            print(f"not tried: {missing}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            try_wheel(wheel, python, Path(folder), with_tests=arguments.tests)
        print(f"Python {version}: {(time.monotonic() - begin) / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
