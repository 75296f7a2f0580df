"""Runs checks and prints their figures. Without a name, it runs all. It fails if there is a violation."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from typing import Any

from checks.figures import Figure

CHECKS: dict[str, str] = {
    "attacks": "files that are replaced, deleted, truncated and overwritten under 16 threads",
    "processes": "forks, spawns and exits while threads read and write",
    "threads": "one reader in 16 threads: exact results, and other threads run during a read",
    "leaks": "opens, failed opens, writers and iterators that are dropped: nothing is left of them",
    "kills": "a process is killed at each call that changes files",
    "upload_kills": "a process is killed at random moments of an upload to an object store",
    "loader_kills": "a PyTorch job is killed at random moments and goes on with other numbers of ranks",
    "shards_model": "workers and a queue of shards in every order of steps, crashes, lost and late messages",
    "shard_kills": "workers of a shard queue are killed and paused at random moments, on every store",
    "faults": "each call that changes files fails",
    "cache": "processes share a local cache half the size of the data, and are killed",
    "salvage": "damaged and cut files give exactly their whole records",
    "bombs": "files that claim more than they hold: an error before memory is allocated",
    "cuts": "files cut at every byte: an error when they are opened",
    "flips": "files with one byte changed: an error or the same records, and `verify` reports it",
    "interrupts": "Ctrl-C at every read and every record: heard soon, and the old file stays",
    "listings": "packed folders by an attacker: no code runs, nothing is written outside",
    "outputs": "the same bytes for any number of threads, and nothing from a writer that was not closed well",
}
"""Each is a module of this package with a function `run(short: bool) -> list[Figure]`."""


def run(name: str, short: bool, **options: Any) -> list[Figure]:
    """Runs the check of that name."""
    figures: list[Figure] = importlib.import_module(f"checks.{name}").run(short, **options)
    return figures


def main() -> None:
    listed = "\n".join(f"  {name:<12}{what}" for name, what in CHECKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m checks",
        description=f"{__doc__}\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="name", help="the checks to run")
    parser.add_argument("--short", action="store_true", help="only what `make test` runs")
    for_shards = parser.add_argument_group("for shard_kills")
    for_shards.add_argument("--store", help="one store: memory, tcp, redis or ray")
    for_shards.add_argument("--number", type=int, help="how many schedules on each store")
    for_shards.add_argument("--seed", type=int, help="another one gives other schedules")
    arguments = parser.parse_args()
    given = {name: getattr(arguments, name) for name in ("store", "number", "seed")}
    options = {name: value for name, value in given.items() if value is not None}
    if options and arguments.names != ["shard_kills"]:
        parser.error("--store, --number and --seed are for shard_kills alone")
    if unknown := [name for name in arguments.names if name not in CHECKS]:
        parser.error(f"there is no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    sound = True
    for name in arguments.names or CHECKS:
        began = time.monotonic()
        figures = run(name, arguments.short, **options)
        sound = sound and all(figure.ok for figure in figures)
        print(f"{name}: {CHECKS[name]} ({time.monotonic() - began:.0f} s)", flush=True)
        for figure in figures:
            print("  " + str(figure).replace("\n", "\n  "), flush=True)
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    main()
