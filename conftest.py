"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import shutil
import signal
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
# A shell that starts us in the background has us ignore Ctrl-C, and children inherit that; some tests are about it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

GOLDEN = ROOT / "tests" / "golden"

IN_CHILDREN = (
    (
        "docs/coming-from.md",
        "docs/coming-from-huggingface.md",
        "docs/coming-from-litdata.md",
        "docs/coming-from-mds.md",
        "docs/coming-from-webdataset.md",
    ),
    ("docs/grain.md",),
    ("docs/tensorflow.md",),
)
"""Pages that run in child processes, because a process with all of their frameworks can abort; a group shares one.

`tests/guides/` starts the processes. A page that is named on the command line runs in the process itself."""

CHILD_PAGES = {ROOT / page for pages in IN_CHILDREN for page in pages}

NEED_FRAMEWORKS = (
    ROOT / "docs" / "beam.md",
    ROOT / "docs" / "compat-array_record-beam.md",
    ROOT / "docs" / "compat-array_record.md",
    ROOT / "docs" / "compat-ffrecord.md",
    ROOT / "docs" / "grain.md",
    ROOT / "docs" / "order.md",
    ROOT / "docs" / "pytorch.md",
    ROOT / "docs" / "quickstart.md",
    ROOT / "docs" / "sharding.md",
    ROOT / "docs" / "tensorflow.md",
    ROOT / "python" / "anyrecord" / "beam",
    ROOT / "python" / "anyrecord" / "compat" / "array_record" / "beam",
    ROOT / "python" / "anyrecord" / "compat" / "ffrecord" / "torch",
    ROOT / "python" / "anyrecord" / "_shard_tcp.py",
    ROOT / "python" / "anyrecord" / "ray",
    ROOT / "python" / "anyrecord" / "torch",
    ROOT / "tests" / "compat" / "array_record" / "beam",
    ROOT / "tests" / "compat" / "ffrecord" / "framework",
    ROOT / "tests" / "interop",
    *CHILD_PAGES,
    *(ROOT / "docs" / page for page in ("migrating-array_record.md", "migrating-ffrecord.md")),
    ROOT / "tests" / "preview" / "test_encoders.py",
)
"""Modules and pages that import a framework. Their tests and examples are marked so."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out what cannot even be imported where the frameworks are not wanted; elsewhere it fails."""
    if collection_path in CHILD_PAGES:  # this is not asked for paths of the command line
        return True
    if config.getoption("markexpr") != "not framework":
        return None
    return True if needs_framework(collection_path) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks examples in docstrings and pages, which cannot mark themselves."""
    if needs_framework(item.path):
        item.add_marker("framework")
    if item.path in CHILD_PAGES:  # WebDataset leaves its files to the garbage collector
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"))


def needs_framework(path: Path) -> bool:
    return any(path.is_relative_to(place) for place in NEED_FRAMEWORKS)


def pytest_collection_finish(session: pytest.Session) -> None:
    # Spare the collector the tests themselves: many tests call `gc.collect`, which would go through all of them.
    gc.collect()
    gc.freeze()
    # Triton and TensorFlow each bring an LLVM. A process that has loaded TensorFlow's aborts when it loads Triton's, as
    # Lightning does. So Triton comes first, whichever tests run.
    if any(item.get_closest_marker("framework") for item in session.items):
        import_module("triton")


def pytest_unconfigure() -> None:
    gc.unfreeze()  # so that what frameworks made is freed at the end; Triton would report it


SECONDS: Counter[str] = Counter()
"""How long the tests of each folder took."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    folder, _, rest = report.nodeid.partition("::")[0].rpartition("/")
    SECONDS[folder or rest] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says where the time went, after runs of more than a minute."""
    if SECONDS.total() > 60:
        shown = ", ".join(f"{folder} {seconds / 60:.1f}" for folder, seconds in SECONDS.most_common() if seconds > 6)
        terminalreporter.write_line(f"minutes of {SECONDS.total() / 60:.1f}: {shown}")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples in documentation write files by plain names."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _with_the_files_of_the_page(request: pytest.FixtureRequest, _in_a_folder_of_its_own: None) -> None:
    """Puts files there that an example reads, and that the library that made them cannot make here."""
    if request.path == ROOT / "docs" / "coming-from-mds.md":
        shutil.copytree(ROOT / "tests" / "guides" / "mds", "mds")


@pytest.fixture(scope="session")
def golden() -> Path:
    """The files that the originals wrote."""
    return GOLDEN
