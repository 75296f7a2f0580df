"""Compiles the core for other systems: `python checks/targets.py CROSS check` or `... CROSS test`.

CROSS is the folder that `requirements/cross.sh` made. `check` only checks types, for systems that have no linker here.
`test` compiles the unit tests for aarch64 Linux and runs them with qemu.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINUX = "aarch64-unknown-linux-gnu"
CHECKED = (LINUX, "aarch64-apple-darwin", "x86_64-apple-darwin", "x86_64-pc-windows-msvc")
SLOW = "reads a file once for each of its bytes: hours with qemu, and the processor has no part in it"
SKIPPED = {
    "uring": "qemu-user knows no io_uring",
    "a_call_that_is_stopped_reads_no_further": "reads with O_DIRECT: the statx of qemu-user tells no alignments for it",
    "ranges_that_will_be_needed": "qemu-user does not pass on what madvise says will be needed",
    "any_byte": SLOW,
    "every_byte": SLOW,
    "anywhere": SLOW,
    "flip": SLOW,
    "tests::damage": SLOW,
}
"""Parts of the names of tests that cannot run with qemu, and why."""
FREE_THREADED = """implementation=CPython
version=3.14
shared=true
pointer_width=64
build_flags=Py_GIL_DISABLED
suppress_build_script_link_lines=true
"""
"""What PyO3 would find out from a free-threaded Python 3.14, if there were one here."""


def variables(cross: Path, target: str) -> dict[str, str]:
    """The environment in which cargo compiles for a target."""
    name = target.replace("-", "_")
    programs = cross / "bin"
    has_compiler = target == LINUX
    pretended = programs / "pretend-to-compile"
    return {
        **os.environ,
        "RUSTC": str(programs / "rustc"),
        "RUSTC_BOOTSTRAP": "1",  # a stable compiler that may build the standard library
        "CARGO_TARGET_DIR": str(cross / "target"),
        "CARGO_INCREMENTAL": "0",
        "PROPTEST_CASES": "8",  # a processor that is played by a program is slow
        f"CC_{name}": str(programs / "aarch64-linux-gnu-gcc" if has_compiler else pretended),
        f"AR_{name}": str(programs / "aarch64-linux-gnu-ar" if has_compiler else pretended),
        f"CARGO_TARGET_{name.upper()}_LINKER": str(programs / "aarch64-linux-gnu-gcc"),
        f"CARGO_TARGET_{name.upper()}_RUNNER": str(programs / "qemu-aarch64"),
    }


def cargo(environment: dict[str, str], *arguments: str) -> None:
    command = ["cargo", *arguments, "--locked"]
    print(*command, flush=True)
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(command)}")


def check(cross: Path) -> None:
    for target in CHECKED:
        build = "-Zbuild-std=std,panic_unwind"
        cargo(variables(cross, target), "check", "--package", "anyrecord", "--lib", "--target", target, build)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(FREE_THREADED)
        file.flush()
        cargo({**os.environ, "PYO3_CONFIG_FILE": file.name}, "check", "--package", "anyrecord-python")
    print(f"the core compiles for {', '.join(CHECKED)}; the binding compiles for free-threaded Python 3.14")


def test(cross: Path) -> None:
    build = "-Zbuild-std=std,panic_unwind,test"
    skipped = [word for name in SKIPPED for word in ("--skip", name)]
    environment = variables(cross, LINUX)
    command = ["test", "--package", "anyrecord", "--lib", "--target", LINUX, build, "--locked", "--", *skipped]
    print("cargo", *command, flush=True)
    raise SystemExit(subprocess.run(["cargo", *command], cwd=ROOT, env=environment, check=False).returncode)


if __name__ == "__main__":
    {"check": check, "test": test}[sys.argv[2]](Path(sys.argv[1]).resolve())
