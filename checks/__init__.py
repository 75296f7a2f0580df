"""Checks that try to break anyrecord: they count what they tried, and what went wrong.

`python -m checks NAME` runs one, `python -m checks` runs all. With `--short`, each runs the part that `make test` runs.

| file | what |
|---|---|
| `__main__` | the command line; prints the figures and fails on a violation |
| `figures` | what a check returns: how much was tried, and what went wrong |
| `damage` | runs the program that damages files byte by byte, `crates/core/examples/damage.rs` |
| `cases` | every format in every way that it can be written, as small files |
| `bombs` | files that claim more than they hold |
| `cuts` | files cut at every byte |
| `flips` | files with one byte changed: read, and verified |
| `interrupts` | Ctrl-C at every read and every record |
| `listings` | packed folders by an attacker |
| `outputs` | the same bytes for any number of threads; writers that are not closed well |
"""

import sys
from pathlib import Path

# The checks use the tables of the tests: formats, patches, listings.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
