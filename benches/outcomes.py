"""Goals that are reached or missed, from saved results alone.

A benchmark that has goals has a function `outcomes(found)`, which gets its saved figures and gives an `Outcome` for
each goal.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from benches.goals import times
from benches.results import Results


@dataclass(frozen=True)
class Outcome:
    """A figure beside its goal: at least `limit`, or at most `limit` if `is_most`."""

    what: str
    figure: float
    limit: float
    is_most: bool = False
    unit: str = "x"
    """What the figure is: "x" is a ratio, "%" a share, anything else is printed behind it."""

    @property
    def is_reached(self) -> bool:
        return self.figure <= self.limit if self.is_most else self.figure >= self.limit

    def __str__(self) -> str:
        """
        >>> print(Outcome("reads", 1.52, 1.6))
        missed   reads: 1.52x, goal at least 1.60x
        >>> print(Outcome("first batch", 0.02, 0.1, is_most=True, unit=" s"))
        reached  first batch: 0.02 s, goal at most 0.1 s
        """
        return f"{'reached' if self.is_reached else 'missed':<8} {self.line()}"

    def line(self) -> str:
        bound = "at most" if self.is_most else "at least"
        return f"{self.what}: {self.shown(self.figure)}, goal {bound} {self.shown(self.limit)}"

    def shown(self, figure: float) -> str:
        if self.unit == "x":
            return f"{figure:.2f}x" if figure < 10 else times(figure)
        return f"{figure:.0%}" if self.unit == "%" else f"{figure:.3g}{self.unit}"


def outcomes(results: Results, names: Iterable[str] | None = None) -> dict[str, list[Outcome]]:
    """The goals of the benchmarks in the results, by benchmark. `names`: only of these."""
    found = {}
    for name in results.sections:
        if names is None or name in names:
            of_one = list(outcomes_of(name, results))
            if of_one:
                found[name] = of_one
    return found


def outcomes_of(name: str, results: Results) -> Iterator[Outcome]:
    module = importlib.import_module(f"benches.{name}")
    if hasattr(module, "outcomes"):
        yield from module.outcomes(results.found(name))


def print_outcomes(found: dict[str, list[Outcome]], only_missed: bool) -> None:
    """Prints the goals, and how many of them are reached."""
    if not found:
        return
    print("== goals\n")
    for name, of_one in found.items():
        print(f"{name}: {counted(of_one)}")
        for outcome in of_one:
            if not (only_missed and outcome.is_reached):
                print(f"  {outcome}")
    everything = [outcome for of_one in found.values() for outcome in of_one]
    print(f"\nall goals: {counted(everything)}")


def counted(found: list[Outcome]) -> str:
    """
    >>> counted([Outcome("a", 2, 1), Outcome("b", 0.5, 1)])
    '1 reached, 1 missed'
    """
    reached = sum(outcome.is_reached for outcome in found)
    return f"{reached} reached, {len(found) - reached} missed"
