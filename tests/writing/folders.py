"""What lies in a folder, temporary files included."""

from __future__ import annotations

from pathlib import Path

__all__ = ["names", "temporary"]


def names(folder: Path) -> list[str]:
    """Everything in the folder, by name."""
    return sorted(entry.name for entry in folder.iterdir())


def temporary(folder: Path) -> list[str]:
    """What writers have under way there."""
    return [name for name in names(folder) if name.endswith(".tmp")]
