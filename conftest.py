"""Fixtures that every test may use."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
# A shell that starts us in the background has us ignore Ctrl-C, and children inherit that; some tests are about it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

GOLDEN = ROOT / "tests" / "golden"

NEED_FRAMEWORKS = (
    ROOT / "python" / "anyrecord" / "compat" / "ffrecord" / "torch",
    ROOT / "python" / "anyrecord" / "torch",
    ROOT / "tests" / "compat" / "ffrecord" / "framework",
    ROOT / "tests" / "interop",
)
"""Modules that import a framework."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out what cannot even be imported where the frameworks are not wanted; elsewhere it fails."""
    if config.getoption("markexpr") != "not framework":
        return None
    return True if any(collection_path.is_relative_to(folder) for folder in NEED_FRAMEWORKS) else None


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples in documentation write files by plain names."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def golden() -> Path:
    """The files that the originals wrote."""
    return GOLDEN
