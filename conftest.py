"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "tests" / "golden"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples in documentation write files by plain names."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def golden() -> Path:
    """The files that the originals wrote."""
    return GOLDEN
