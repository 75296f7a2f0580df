"""`import recordio` gives ours where it was installed: in processes of their own."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from compat.scripts import run, run_text

PROGRAM = """
    import recordio
    from recordio import Index, Scanner, Writer
    writer = Writer("a.recordio")
    writer.write(b"one")
    writer.close()
    print(recordio.__name__, Index("a.recordio").num_records(), Scanner("a.recordio").record())
"""
PRINTED = "anyrecord.compat.recordio 1 b'one'\n"


def test_install(tmp_path: Path) -> None:
    program = f"""
    import anyrecord.compat
    anyrecord.compat.install("recordio")
    {PROGRAM.strip()}
    """
    assert run_text(program, tmp_path) == PRINTED


def test_a_program_that_nobody_edits(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(dedent(PROGRAM))
    assert run("-m", "anyrecord.compat", "train.py", folder=tmp_path).stdout == PRINTED


def test_it_needs_no_other_package(tmp_path: Path) -> None:
    program = """
    import sys
    import anyrecord.compat.recordio
    print({"numpy", "torch", "distutils", "ctypes"} & set(sys.modules))
    """
    assert run_text(program, tmp_path) == "set()\n"
