"""What a check returns: how much was tried, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Figure"]

_SHOWN = 20


@dataclass
class Figure:
    """One line of a check's result."""

    what: str
    """What was tried, as the unit of `tried`: "bytes changed", "kills during a write"."""
    tried: int = 0
    violations: list[str] = field(default_factory=list)
    """What went wrong, one sentence each. A check that is sound has none."""
    at_least: int = 1
    """Fewer than this tried is a violation: a check that tries nothing proves nothing."""

    @property
    def ok(self) -> bool:
        """Whether enough was tried and nothing went wrong."""
        return not self.violations and self.tried >= self.at_least

    def __str__(self) -> str:
        lines = [f"{self.tried:,} {self.what}, {len(self.violations)} violations"]
        if self.tried < self.at_least:
            lines.append(f"  too few: at least {self.at_least:,} are needed")
        lines += [f"  {violation}" for violation in self.violations[:_SHOWN]]
        return "\n".join(lines)
