"""Runs a library in a process of its own, in a Python that has it, and measures the memory of all its processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from benches.libraries.job import Job, environment

SECONDS = 300
"""A library that takes longer than this is left out."""
PAUSE = 0.05
"""Seconds between two looks at the memory."""
ROOT = Path(__file__).parents[2]


@cache
def python_with(package: str, *, here: bool = False) -> str | None:
    """A Python that has a package: what LOADER_PEERS names, or `make` made for other libraries, or this one.

    `here`: only this one.
    """
    others = [os.environ.get("LOADER_PEERS"), str(Path(sys.prefix) / "loader-peers" / "bin" / "python")]
    question = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    for python in filter(None, [sys.executable] if here else [*others, sys.executable]):
        if shutil.which(python) and subprocess.run([python, "-c", question], check=False).returncode == 0:
            return python
    return None


def ask(python: str, library: str, task: str, job: Job, *, watch_memory: bool = False) -> dict[str, Any]:
    """Runs a child process and returns its answer. `peak` in it: the most memory of all its processes, in MB."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    # The child and its worker processes are a session, so all of them can be found and ended.
    child = subprocess.Popen(
        [python, "-m", "benches.libraries", library, task, job.to_json()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(job.endpoint), "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,
    )
    peak = Peak(child.pid) if watch_memory else None
    try:
        out, errors = child.communicate(timeout=SECONDS)
    except BaseException:
        os.killpg(child.pid, 9)
        child.communicate()
        raise
    finally:
        most = peak.stop() if peak else None
    if child.returncode != 0:
        raise RuntimeError(f"{library} ended with status {child.returncode}:\n{errors[-2000:]}")
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer if most is None else {**answer, "peak": most}


class Peak:
    """A thread that looks at the memory of all processes of a session from time to time."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.most = 0.0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()

    def _look(self) -> None:
        while not self.is_over.wait(PAUSE):
            self.most = max(self.most, sum(map(own_megabytes, members(self.session))))

    def stop(self) -> float:
        self.is_over.set()
        self.thread.join()
        return self.most


def members(session: int) -> Iterator[Path]:
    """The folders in /proc of the processes of a session."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name, in parentheses, can have spaces. The session is the fourth field after it.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            yield folder


def own_megabytes(process: Path) -> float:
    """The memory of a process, without the page cache. What several processes share is divided among them."""
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0  # it has ended
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) / 1024
