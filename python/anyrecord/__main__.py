"""`python -m anyrecord`: the command line."""

from __future__ import annotations

import sys

from anyrecord.cli import main

if __name__ == "__main__":
    sys.exit(main(prog_name="python -m anyrecord"))
