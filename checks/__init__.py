"""Checks that try to break anyrecord: they count what they tried, and what went wrong.

`python -m checks NAME` runs one, `python -m checks` runs all. With `--short`, each runs the part that `make test` runs.

| file | what |
|---|---|
| `__main__` | the command line; prints the figures and fails on a violation |
| `figures` | what a check returns: how much was tried, and what went wrong |
| `salvage` | damages and cuts small files: `salvage` returns exactly the records that are whole |
| `framing` | where each record of a file is, from the layout of its format alone |
"""
