"""A SIGBUS that is not about our memory maps does what it would do without us, whoever installed handlers when."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# Each handler, and whether it lets the program go on after a fault.
HANDLERS = [
    "default",
    "ignored",
    "exits",
    "exits with SA_NODEFER",
    "exits with SA_ONSTACK",
    "exits with SA_RESETHAND",
    "exits, informed",
    "exits, informed with SA_NODEFER with SA_ONSTACK with SA_RESETHAND",
    "returns with SA_RESETHAND",
    "repairs",
    "repairs with SA_NODEFER",
    "jumps",
    "jumps with SA_NODEFER with SA_ONSTACK",
    "raises again",
    "raises again with SA_NODEFER",
    "calls the previous",
    "calls the previous with SA_ONSTACK",
]
# Before and after ours, with and without ours installed again.
ORDERS = [
    ["{}", "open"],
    ["open", "{}"],
    ["open", "{}", "read"],
    ["stack", "{}", "open"],
    ["open", "stack", "{}", "read"],
]
# Two in one chain.
PAIRS = [
    ["handler: exits", "open", "handler: raises again", "read"],
    ["handler: exits, informed", "open", "handler: calls the previous", "read"],
    ["handler: raises again", "open", "handler: calls the previous", "read"],
    ["open", "handler: calls the previous", "read", "handler: exits", "read"],
    ["open", "handler: raises again with SA_NODEFER", "read", "handler: default", "read"],
    ["handler: exits", "open", "fork"],
    ["open", "fork", "handler: exits", "read"],
    ["handler: jumps", "open", "handler: calls the previous", "read"],
    # A circle: what came first is looked after, and keeps ours as what was before it.
    ["handler: calls the previous", "open", "handler: calls the previous", "read"],
]
FAULTHANDLER = [
    ["faulthandler: on", "open"],
    ["open", "faulthandler: on"],
    ["open", "faulthandler: on", "read"],
    ["open", "faulthandler: on", "read", "faulthandler: on", "read"],
    ["faulthandler: on", "open", "faulthandler: off"],
    ["faulthandler: on", "open", "faulthandler: off", "read"],
    ["faulthandler: on", "open", "faulthandler: off", "read", "faulthandler: on", "read"],
    ["open", "faulthandler: on", "read", "faulthandler: off"],
    ["open", "faulthandler: on", "read", "faulthandler: off", "read"],
    ["open", "faulthandler: on", "read", "faulthandler: off", "faulthandler: on", "read"],
    ["handler: exits", "open", "faulthandler: on", "read"],
    ["handler: exits", "faulthandler: on", "open", "faulthandler: off", "read"],
    ["open", "handler: calls the previous", "faulthandler: on", "read"],
    ["faulthandler: on", "handler: calls the previous", "open", "read"],
    ["faulthandler: on", "open", "handler: calls the previous", "read"],
]
# One that returns: without us, too, a fault would come again and again.
RETURNS = [
    ["handler: returns", "open"],
    ["open", "handler: returns", "read"],
    ["python handler", "open"],
    ["open", "python handler", "read", "faulthandler: on", "read"],
]
SIGNALS = ["fault", "kill", "killed", "raised", "queue"]

BEFORE = [
    *([step.format(f"handler: {handler}") for step in order] for handler, order in product(HANDLERS, ORDERS)),
    *PAIRS,
    *FAULTHANDLER,
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    assert compiler, "these tests need a C compiler, which building the project needs too"
    built = tmp_path_factory.mktemp("handlers") / "handlers.so"
    source = HERE / "foreign_handlers.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(source)], check=True)
    return built


def outcomes(library: Path, folder: Path, programs: list[tuple[str, list[str]]]) -> list[tuple[int, str]]:
    """The status and the output of each program."""
    command = [sys.executable, str(HERE / "foreign_signals.py"), str(library)]
    ran = subprocess.run(
        command, input=json.dumps(programs), capture_output=True, text=True, cwd=folder, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return [(status, output) for status, output in json.loads(ran.stdout)]


def check_alike(library: Path, folder: Path, programs: list[list[str]]) -> list[tuple[int, str]]:
    """Each program ends in the same way with the records mapped as with positional reads."""
    both = [(io, steps) for steps in programs for io in ("plain", "map")]
    found = outcomes(library, folder, both)
    different = [
        f"{steps}\n    without a map: {str(plain)[:1000]}\n    with a map:    {str(mapped)[:1000]}"
        for steps, plain, mapped in zip(programs, found[::2], found[1::2], strict=True)
        if plain != mapped
    ]
    assert not different, "\n".join(different)
    assert all(status != -signal.SIGALRM for status, _ in found), "a program hung"
    return found[::2]


@pytest.mark.parametrize("cause", SIGNALS)
def test_a_foreign_signal_ends_the_program_as_it_would_without_a_map(library: Path, tmp_path: Path, cause: str) -> None:
    before = BEFORE if cause == "fault" else [*BEFORE, *RETURNS]
    found = check_alike(library, tmp_path, [[*steps, cause] for steps in before])
    # Not a table of programs that all do the same.
    assert {-signal.SIGBUS, 3, 0} <= {status for status, _ in found}


@pytest.mark.parametrize("cause", ["fault in threads", "faults"])
def test_many_foreign_faults_at_once_and_in_turn(library: Path, tmp_path: Path, cause: str) -> None:
    handlers = ["default", "repairs", "repairs with SA_NODEFER", "jumps", "jumps with SA_ONSTACK"]
    before = [[step.format(f"handler: {handler}") for step in order] for handler, order in product(handlers, ORDERS)]
    before += [["open", "faulthandler: on", "read"]] if cause == "faults" else []
    check_alike(library, tmp_path, [[*steps, cause] for steps in before])


@pytest.mark.parametrize("cause", ["own", "own in threads"])
def test_faults_in_our_maps_are_errors_whatever_handlers_there_are(library: Path, tmp_path: Path, cause: str) -> None:
    # A handler that came after ours and that nobody noticed yet sees the fault first; faulthandler lets it pass.
    first = [steps for steps in BEFORE if steps[-1] in ("open", "read")]
    first += [["open", "faulthandler: on"], ["open", "block", "read"], ["block", "open"]]
    # As PyTorch's workers do. The child looks for itself before it reads.
    first += [["open", "fork", "handler: exits"], ["open", "fork", "faulthandler: on"]]
    programs = [("map", [*steps, cause]) for steps in first]
    for (_, steps), (status, output) in zip(programs, outcomes(library, tmp_path, programs), strict=True):
        assert status == 0, f"{steps}: {status} {output}"
        assert output.count("[found 'TruncatedError']") == (1 if cause == "own" else 4), f"{steps}: {output}"


def test_more_foreign_handlers_than_we_can_be_installed_over(library: Path, tmp_path: Path) -> None:
    """Then ours is not there, and files are read without their maps."""
    flags = ["", " with SA_NODEFER", " with SA_ONSTACK", " with SA_RESETHAND", " with SA_NODEFER with SA_ONSTACK"]
    installed = [f"handler: {kind}{flag}" for kind in ("exits", "returns", "jumps", "repairs") for flag in flags]
    steps = ["open", *(step for handler in installed for step in (handler, "read"))]
    ((status, output),) = outcomes(library, tmp_path, [("map", [*steps, "own"])])
    assert (status, output) == (0, "[found 'TruncatedError']\n")
    check_alike(library, tmp_path, [[*steps, "handler: exits", "read", cause] for cause in SIGNALS])


def test_after_a_fault_in_our_map_foreign_signals_still_end_the_program(library: Path, tmp_path: Path) -> None:
    before = [["open", "own"], ["open", "faulthandler: on", "read", "own"], ["handler: exits", "open", "own"]]
    check_alike(library, tmp_path, [[*steps, cause] for steps in before for cause in SIGNALS])
