"""Runs a program with anyrecord's modules in place of the originals.

    python -m anyrecord.compat train.py --epochs 3
    python -m anyrecord.compat -m package.train --epochs 3

`ANYRECORD_COMPAT` chooses the originals. If it is not set, all originals that have modules here are replaced.
"""

from __future__ import annotations

import os
import runpy
import sys

from anyrecord.compat.installation import VARIABLE, available, install, install_from_environment

_USAGE = """\
usage: python -m anyrecord.compat program.py [arguments]
       python -m anyrecord.compat -m module [arguments]

Runs a program that imports {names} with anyrecord in their place.
example: python -m anyrecord.compat train.py --epochs 3"""


def main(arguments: list[str]) -> None:
    """Runs the program that the arguments name."""
    is_module = arguments[:1] == ["-m"]
    program = arguments[1:] if is_module else arguments
    if not program or program[0].startswith("-"):
        usage = _USAGE.format(names=", ".join(available()))
        if arguments in (["-h"], ["--help"]):
            print(usage)
            return
        sys.exit(usage)
    try:
        if os.environ.get(VARIABLE):
            install_from_environment()
        else:
            install(*available())
    except (ImportError, ValueError) as error:
        sys.exit(str(error))
    sys.argv[:] = program
    if is_module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        return
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
    runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
