"""Runs the fuzz targets, and keeps their corpora.

    python fuzz/run.py run [--seconds 600] [--runs 0] [TARGET ...]   fuzz; the seconds are shared by all targets
    python fuzz/run.py seed                                        write first inputs, from the golden files
    python fuzz/run.py minimise [TARGET ...]                       keep the fewest inputs that reach the same code

New inputs go to `fuzz/work/`, which is not committed. `minimise` moves those that matter to `fuzz/corpus/`, which
`make test` replays. An input that breaks a rule goes to `fuzz/artifacts/`; once the cause is fixed, it belongs in
`fuzz/regressions/TARGET/`. Needs a nightly Rust compiler and cargo-fuzz.
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

HERE = Path(__file__).resolve().parent
BINARIES = HERE / "target" / "x86_64-unknown-linux-gnu" / "release"
WHOLE_FILE = 128 << 10
"""The longest input of a target that takes whole files."""
PARSER = 4 << 10
"""The longest input of a target that takes one part of a file."""
MOST_COMMITTED = 192 << 10
"""Bytes of one committed corpus. Larger inputs are left out first."""

TARGETS = {
    **dict.fromkeys(("array_record", "any_format", "large_codec", "round_trip", "faulty_output"), WHOLE_FILE),
    **dict.fromkeys(("riegeli", "recordio", "tfrecord", "ffrecord"), PARSER),
    **dict.fromkeys(("simple_chunk", "transposed_chunk", "transposed_states", "footer", "side_index"), PARSER),
    **dict.fromkeys(("codec", "gzip", "snappy_frames", "journal", "view_numbers", "write_options"), PARSER),
}
"""The longest input of each target."""

ASAN = "detect_odr_violation=0:quarantine_size_mb=16:malloc_context_size=8:detect_stack_use_after_return=0"
"""Fewer freed bytes are remembered, and short stacks: a third faster. The library has no pointers into old stack frames."""

LIMITS = ("-rss_limit_mb=512", "-malloc_limit_mb=128", "-timeout=10")


@dataclass
class Outcome:
    """What one run of one target did."""

    target: str
    executions: int
    seconds: float
    found: list[str]


def build(targets: list[str]) -> None:
    """Builds the targets with AddressSanitizer."""
    if shutil.which("cargo-fuzz") is None:
        sys.exit("cargo-fuzz is missing: run `cargo install cargo-fuzz --locked`")
    if subprocess.run(["rustup", "run", "nightly", "rustc", "--version"], capture_output=True).returncode:
        sys.exit("a nightly compiler is missing: run `rustup toolchain install nightly --profile minimal`")
    for target in targets if len(targets) < 4 else [""]:  # one call builds all
        subprocess.run(["cargo", "+nightly", "fuzz", "build", *filter(None, [target])], cwd=HERE, check=True)


def folders(target: str) -> list[str]:
    """Where the inputs of a target are. New ones go to the first folder."""
    kinds = [HERE / kind / target for kind in ("work", "corpus", "regressions")]
    kinds[0].mkdir(parents=True, exist_ok=True)
    return [str(folder) for folder in kinds if folder.is_dir()]


def fuzz(target: str, max_len: int, seconds: float, runs: int) -> Outcome:
    """Runs one target until the time or the number of runs is over, or until something is found."""
    artifacts = HERE / "artifacts" / target
    artifacts.mkdir(parents=True, exist_ok=True)
    before = set(artifacts.iterdir())
    flags = [*LIMITS, f"-max_len={max_len}", "-print_final_stats=1", f"-artifact_prefix={artifacts}/"]
    if seconds:
        flags.append(f"-max_total_time={max(1, round(seconds))}")
    if runs:
        flags.append(f"-runs={runs}")
    logs = HERE / "logs"
    logs.mkdir(exist_ok=True)
    started = time.monotonic()
    with (logs / f"{target}-{time.strftime('%H%M%S')}.log").open("w") as log:
        environment = {**os.environ, "ASAN_OPTIONS": ASAN}
        command = [str(BINARIES / target), *flags, *folders(target)]
        subprocess.run(command, cwd=HERE, stdout=log, stderr=subprocess.STDOUT, env=environment)
    text = Path(log.name).read_text(errors="replace")
    done = re.search(r"stat::number_of_executed_units: (\d+)", text)
    if done is None:  # a finding ends the run without statistics
        done = (re.findall(r"^#(\d+)\t", text, re.MULTILINE) or ["0"])[-1]
    else:
        done = done[1]
    found = sorted(str(path.relative_to(HERE)) for path in set(artifacts.iterdir()) - before)
    return Outcome(target, int(done), time.monotonic() - started, found)


def run(targets: list[str], seconds: float, runs: int, max_len: int | None) -> int:
    """Runs targets one after the other. Prints a line for each. Returns how many inputs broke a rule."""
    build(targets)
    found = 0
    print(f"{'target':<20} {'executions':>12} {'a second':>10}  findings", flush=True)
    for target in targets:
        outcome = fuzz(target, max_len or TARGETS[target], seconds / len(targets), runs)
        found += len(outcome.found)
        rate = outcome.executions / max(outcome.seconds, 0.1)
        print(f"{target:<20} {outcome.executions:>12,} {rate:>10,.0f}  {', '.join(outcome.found) or 0}", flush=True)
    return found


def minimise(targets: list[str]) -> None:
    """Makes the committed corpus of each target: the fewest inputs that reach what all known inputs reach."""
    build(targets)
    for target in targets:
        kept = HERE / "work" / f"{target}.minimised"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        command = [str(BINARIES / target), "-merge=1", *LIMITS, f"-max_len={WHOLE_FILE}", str(kept), *folders(target)]
        done = subprocess.run(command, cwd=HERE, capture_output=True)
        if done.returncode:
            sys.exit(f"{target}: {done.stderr[-2000:].decode(errors='replace')}")
        corpus = HERE / "corpus" / target
        shutil.rmtree(corpus, ignore_errors=True)
        corpus.mkdir(parents=True)
        inputs = sorted(kept.iterdir(), key=lambda path: path.stat().st_size)
        total = 0
        for path in inputs:
            total += path.stat().st_size
            if total <= MOST_COMMITTED:
                shutil.copy(path, corpus / path.name)
        shutil.rmtree(kept)
        print(f"{target}: {len(list(corpus.iterdir()))} of {len(inputs)} inputs", flush=True)


def seed() -> None:
    """Writes the first inputs."""
    subprocess.run(["cargo", "run", "--no-default-features", "--example", "seed"], cwd=HERE, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "seed", "minimise"))
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=0, help="time for all targets together")
    parser.add_argument("--runs", type=int, default=0, help="executions of each target")
    parser.add_argument("--max-len", type=int, help="longest input, instead of that of the target")
    arguments = parser.parse_args()
    targets = arguments.targets or list(TARGETS)
    if unknown := [target for target in targets if target not in TARGETS]:
        parser.error(f"no such target: {', '.join(unknown)}; targets: {', '.join(TARGETS)}")
    if arguments.action == "seed":
        seed()
    elif arguments.action == "minimise":
        minimise(targets)
    else:
        return 1 if run(targets, arguments.seconds, arguments.runs, arguments.max_len) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
