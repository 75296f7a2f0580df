"""Runs the fuzz targets, and keeps their corpora.

    python fuzz/run.py run --seconds 600 [TARGET ...]      fuzz; the seconds are shared by all targets
    python fuzz/run.py run [TARGET ...] --total [N]        fuzz until all runs so far have N executions of each target
    python fuzz/run.py run --no-sanitizer ...              the same without AddressSanitizer, about three times as fast
    python fuzz/run.py count                               executions and findings of all runs so far
    python fuzz/run.py seed                                write first inputs, from the golden files
    python fuzz/run.py minimise [TARGET ...]               commit the fewest inputs that reach what all inputs reach

The corpora are `fuzz/corpus/TARGET.ffr`, which `make test` replays. They are unpacked to `fuzz/work/TARGET/`, where the
fuzzer adds inputs. An input that breaks a rule goes to `fuzz/artifacts/TARGET/`; once the cause is fixed, it belongs in
`fuzz/regressions/TARGET/`. Each run has a log in `fuzz/logs/`. Needs a nightly Rust compiler and cargo-fuzz.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import corpus

HERE = Path(__file__).resolve().parent
TARGET_FOLDERS = {"address": HERE / "target", "none": HERE / "target" / "plain"}
"""Where the binaries are built, by their sanitizer."""


@dataclass(frozen=True)
class Target:
    """How a target is run."""

    max_len: int
    """Bytes of its longest input."""
    goal: int
    """Executions before a release."""


SHORT, LONG = 4 << 10, 128 << 10
PARSER = Target(SHORT, 10_000_000)
SHORT_FILE = Target(SHORT, 500_000)
LONG_FILE = Target(LONG, 500_000)

TARGETS = {
    **dict.fromkeys(("array_record", "any_format", "salvage", "round_trip", "faulty_output"), LONG_FILE),
    "large_codec": Target(LONG, 20_000),
    **dict.fromkeys(("riegeli", "recordio", "tfrecord", "ffrecord"), SHORT_FILE),
    **dict.fromkeys(("simple_chunk", "transposed_chunk", "transposed_states", "footer", "side_index"), PARSER),
    **dict.fromkeys(("codec", "gzip", "snappy_frames", "journal", "view_numbers", "write_options", "listing"), PARSER),
}
IN_PYTHON = ("listing",)
"""Targets that are Python programs, `fuzz/TARGET.py`."""

ASAN = ":".join(
    (
        "detect_odr_violation=0",
        "detect_stack_use_after_return=0",
        "quarantine_size_mb=2",
        "thread_local_quarantine_size_kb=64",
        "malloc_context_size=2",
        "allocator_release_to_os_interval_ms=-1",
    )
)
"""Fewer freed bytes are remembered, and short stacks: a third faster. The library has no pointers into old frames."""

LIMITS = ("-rss_limit_mb=512", "-malloc_limit_mb=128", "-timeout=10")

# Every input is chosen with the same chance, and no known input is replaced by a shorter one. Both would cost time
# with each new input. `minimise` makes the corpora small again.
SCHEDULE = ("-entropic=0", "-reduce_inputs=0")


def build(targets: list[str], sanitizer: str = "address") -> None:
    """Builds the targets."""
    targets = [target for target in targets if target not in IN_PYTHON]
    if not targets:
        return
    if shutil.which("cargo-fuzz") is None:
        sys.exit("cargo-fuzz is missing: run `cargo install cargo-fuzz --locked`")
    if subprocess.run(["rustup", "run", "nightly", "rustc", "--version"], capture_output=True).returncode:
        sys.exit("a nightly compiler is missing: run `rustup toolchain install nightly --profile minimal`")
    # Tracing each comparison takes a third of the time. It helps to find magic bytes and checksums, which the targets
    # put right themselves.
    command = ["cargo", "+nightly", "fuzz", "build", "--no-trace-compares", "--sanitizer", sanitizer]
    command += ["--target-dir", str(TARGET_FOLDERS[sanitizer])]
    for target in targets if len(targets) < 4 else [""]:  # one call builds all
        subprocess.run([*command, *filter(None, [target])], cwd=HERE, check=True)


def program(target: str, sanitizer: str = "address") -> list[str]:
    """The command that runs a target."""
    if target in IN_PYTHON:
        return [sys.executable, str(HERE / f"{target}.py")]
    return [str(TARGET_FOLDERS[sanitizer] / "x86_64-unknown-linux-gnu" / "release" / target)]


def folders(target: str) -> list[str]:
    """Where the inputs of a target are. New ones go to the first folder."""
    regressions = HERE / "regressions" / target
    return [str(folder) for folder in (corpus.unpack(target), regressions) if folder.is_dir()]


def logs(target: str) -> list[Path]:
    """The logs of all runs of a target."""
    return sorted((HERE / "logs").glob(f"{target}-*.log"))


def executions(log: Path) -> int:
    """How many inputs a run executed."""
    text = log.read_text(errors="replace")
    if done := re.search(r"stat::number_of_executed_units: (\d+)", text):
        return int(done[1])
    # A run that was killed prints no statistics, but it has printed its progress.
    return int((re.findall(r"^#(\d+)\t", text, re.MULTILINE) or ["0"])[-1])


def findings(log: Path) -> list[str]:
    """The inputs that broke a rule in a run."""
    text = log.read_text(errors="replace")
    return re.findall(r"^artifact_prefix=.*Test unit written to (\S+)", text, re.MULTILINE)


def so_far(target: str) -> int:
    """Executions of all runs."""
    return sum(map(executions, logs(target)))


def fuzz(target: str, seconds: float, runs: int, more: list[str], sanitizer: str) -> Path:
    """Runs one target until the time or the number of runs is over, or until something is found. Returns the log."""
    artifacts = HERE / "artifacts" / target
    artifacts.mkdir(parents=True, exist_ok=True)
    flags = [*LIMITS, *SCHEDULE, *more, f"-max_len={TARGETS[target].max_len}", f"-artifact_prefix={artifacts}/"]
    if seconds:
        flags.append(f"-max_total_time={max(1, round(seconds))}")
    if runs:
        flags.append(f"-runs={runs}")
    kind = "" if sanitizer == "address" else ".plain"
    path = HERE / "logs" / f"{target}-{time.strftime('%Y%m%d-%H%M%S')}{kind}.log"
    path.parent.mkdir(exist_ok=True)
    with path.open("x") as log:
        command = [*program(target, sanitizer), *flags, "-print_final_stats=1", *folders(target)]
        environment = {**os.environ, "ASAN_OPTIONS": ASAN}
        subprocess.run(command, cwd=HERE, stdout=log, stderr=subprocess.STDOUT, env=environment)
    return path


def run(targets: list[str], seconds: float, runs: int, total: int | None, more: list[str], sanitizer: str) -> int:
    """Runs targets one after the other. Prints a line for each. Returns how many inputs broke a rule.

    `total`: runs stop when the executions of all logs reach it. 0: the goal of the target. `more`: flags of libFuzzer.
    """
    build(targets, sanitizer)
    found = 0
    print(f"{'target':<20} {'executions':>12} {'a second':>10} {'so far':>14}  findings", flush=True)
    for target in targets:
        if total is not None and (runs := (total or TARGETS[target].goal) - so_far(target)) <= 0:
            continue
        started = time.monotonic()
        log = fuzz(target, seconds / len(targets), runs, more, sanitizer)
        done, rate = executions(log), executions(log) / max(time.monotonic() - started, 0.1)
        if done == 0:
            sys.exit(f"{target} did not run: {log.read_text(errors='replace')[-2000:]}")
        found += len(findings(log))
        print(
            f"{target:<20} {done:>12,} {rate:>10,.0f} {so_far(target):>14,}  {', '.join(findings(log)) or 0}",
            flush=True,
        )
    return found


def count(targets: list[str]) -> None:
    """Prints the executions and findings of all runs so far."""
    print(f"{'target':<20} {'executions so far':>18} {'with the sanitizer':>18} {'goal':>12}  findings")
    for target in targets:
        found = sum(len(findings(log)) for log in logs(target))
        sanitized = sum(executions(log) for log in logs(target) if not log.name.endswith(".plain.log"))
        print(f"{target:<20} {so_far(target):>18,} {sanitized:>18,} {TARGETS[target].goal:>12,}  {found}")


def minimise(targets: list[str]) -> None:
    """Makes the committed corpus of each target: the fewest inputs that reach what all known inputs reach."""
    build(targets)
    for target in targets:
        kept = HERE / "work" / f"{target}.minimised"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        # How often an input reaches a place does not count: the replay of the corpora shall be quick.
        merge = ["-set_cover_merge=1", "-use_counters=0"]
        command = [*program(target), *merge, *LIMITS, f"-max_len={LONG}", str(kept), *folders(target)]
        done = subprocess.run(command, cwd=HERE, capture_output=True, env={**os.environ, "ASAN_OPTIONS": ASAN})
        if done.returncode:
            sys.exit(f"{target}: {done.stderr[-2000:].decode(errors='replace')}")
        if not any(kept.iterdir()):
            sys.exit(f"{target} did not run: {done.stderr[-2000:].decode(errors='replace')}")
        taken, reached = corpus.pack(target, kept)
        shutil.rmtree(kept)
        print(f"{target}: {taken} of {reached} inputs, {corpus.stored(target).stat().st_size:,} bytes", flush=True)


def seed() -> None:
    """Writes the first inputs to the work folders."""
    subprocess.run(["cargo", "run", "--no-default-features", "--example", "seed"], cwd=HERE, check=True)
    subprocess.run([sys.executable, str(HERE / "listing.py"), "--seed", str(corpus.unpack("listing"))], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "count", "seed", "minimise"))
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=0, help="time for all targets together")
    parser.add_argument("--runs", type=int, default=0, help="executions of each target")
    parser.add_argument(
        "--total", type=int, nargs="?", const=0, help="executions of each target in all runs; the goals if no number"
    )
    parser.add_argument("--no-sanitizer", action="store_true", help="without AddressSanitizer, and faster")
    parser.add_argument(
        "--flag", action="append", default=[], metavar="FLAG", help="a flag of libFuzzer: --flag=-use_counters=0"
    )
    arguments = parser.parse_args()
    targets = arguments.targets or list(TARGETS)
    if unknown := [target for target in targets if target not in TARGETS]:
        parser.error(f"no such target: {', '.join(unknown)}; targets: {', '.join(TARGETS)}")
    match arguments.action:
        case "seed":
            seed()
        case "minimise":
            minimise(targets)
        case "count":
            count(targets)
        case _:
            if not (arguments.seconds or arguments.runs or arguments.total is not None):
                parser.error("say when to stop: --seconds, --runs or --total")
            sanitizer = "none" if arguments.no_sanitizer else "address"
            how = (arguments.seconds, arguments.runs, arguments.total, arguments.flag, sanitizer)
            return bool(run(targets, *how))
    return 0


if __name__ == "__main__":
    sys.exit(main())
