"""Runs every code block of every page, in order, in a folder of its own.

| in a page | what happens |
|---|---|
| ```` ```python ```` with `>>>` | runs as a doctest |
| ```` ```python ```` without `>>>` | runs; what it prints is not compared |
| ```` ```console ```` | each line with `$ ` runs in a shell; the output below it is compared; `...` is anything |
| ```` ```sh ```` | runs in a shell, and must not fail |
| `<!-- run: CODE -->` | Python code that runs, and that readers do not see; it may have many lines |
| `<!-- not run: REASON -->` | right before a block: the block does not run. Reasons are in `test_marks.py` |

The blocks of a page share one namespace. Blocks in other languages are not run.
"""
