"""Checks that try to break anyrecord: they count what they tried, and what went wrong.

`python -m checks NAME` runs one, `python -m checks` runs all. With `--short`, each runs the part that `make test` runs.

| file | what |
|---|---|
| `__main__` | the command line; prints the figures and fails on a violation |
| `figures` | what a check returns: how much was tried, and what went wrong |
| `attacks` | files that are replaced, deleted, truncated and overwritten under 16 threads |
| `leaks` | opens, failed opens, writers and iterators that are dropped: nothing is left of them |
| `processes` | forks, spawns and exits while threads read and write |
| `threads` | one reader in 16 threads: exact results, and other threads run during a read |
| `child` | runs a function in a forked child, where a crash or a hang can be counted |
| `record_files` | small files of every format and codec, of records that contain their own number |
| `kills` | a process is killed at each call that changes files |
| `faults` | each call that changes files fails: disk full, I/O error, interrupted, half written |
| `scenes` | for both: every way in which the library writes files |
| `playing` | for both: plays the scenes on all cores |
| `stopping` | for both: a child process that stops before each of its calls |
| `upload_kills` | a process is killed at random moments of an upload to an object store |
| `upload_scenes` | for it: every kind of write to an object store |
| `holding_proxy` | for it: counts requests, and stops at one of them |
| `salvage` | damages and cuts small files: `salvage` returns exactly the records that are whole |
| `framing` | where each record of a file is, from the layout of its format alone |
| `damage` | runs the program that damages files byte by byte, `crates/core/examples/damage.rs` |
| `cases` | every format in every way that it can be written, as small files |
| `bombs` | files that claim more than they hold |
| `cuts` | files cut at every byte |
| `flips` | files with one byte changed: read, and verified |
| `interrupts` | Ctrl-C at every read and every record |
| `listings` | packed folders by an attacker |
| `outputs` | the same bytes for any number of threads; writers that are not closed well |
| `wheel` | a program of its own: installs a wheel into empty environments and tries it there |
| `wheel_smoke` | for it: what is tried |
| `targets` | a program of its own: compiles the core for other systems, and runs its tests with qemu |
"""

import sys
from pathlib import Path

# The checks use the tables of the tests: formats, patches, listings.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
