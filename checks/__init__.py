"""Checks that try to break anyrecord: they count what they tried, and what went wrong.

`python -m checks NAME` runs one, `python -m checks` runs all. With `--short`, each runs the part that `make test` runs.

| file | what |
|---|---|
| `__main__` | the command line; prints the figures and fails on a violation |
| `figures` | what a check returns: how much was tried, and what went wrong |
| `attacks` | files that are replaced, deleted, truncated and overwritten under 16 threads |
| `child` | runs a function in a forked child, where a crash or a hang can be counted |
| `record_files` | small files of every format and codec, of records that contain their own number |
"""
