"""A training job is killed at random moments and goes on with other numbers of ranks, threads and processes.

The batch size changes, too. With `tail="uneven"`, each epoch has each record exactly once. Nothing is left of a killed
job: no process, no shared memory.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyrecord

from checks.child import LIMIT_SECONDS
from checks.figures import Figure

__all__ = ["run"]

RECORDS = 2_500
KILLS = 50
SHORT_KILLS = 3
MOST_STEPS = 14
"""A job is killed after at most so many steps."""
SHARED = Path("/dev/shm")
MARK = ("ANYRECORD_CHECK", f"{os.getpid()}.{time.time_ns()}")
"""A variable in the environment of all processes that descend from this one."""


@dataclass(frozen=True)
class Life:
    """How a job runs until it is killed."""

    ranks: int
    batch: int
    loader: str
    """`Loader`, or PyTorch's `DataLoader` with our sampler."""
    threads: int
    processes: int

    @classmethod
    def any(cls, chance: random.Random) -> Life:
        loader = chance.choice(["Loader", "Loader", "Loader", "DataLoader"])
        return cls(
            chance.randint(1, 4), chance.randint(1, 60), loader, chance.randint(0, 3), chance.choice([0, 0, 1, 2])
        )


def number_of(record: bytes) -> int:
    """The number of a record: what `decode` does here."""
    return int(record[:8])


def run(short: bool) -> list[Figure]:
    """Runs the job, and kills it."""
    job = Killed(SHORT_KILLS if short else KILLS)
    before = shared_memory()
    with tempfile.TemporaryDirectory() as folder:
        job.run(Path(folder))
    left = [f"{name} is left in {SHARED}" for name in sorted(shared_memory() - before)]
    return [
        Figure("kills of a training job", job.kills, job.wrong, job.wanted_kills),
        Figure("steps until then, of all jobs", job.steps, []),
        Figure("epochs, each with every record once", job.epochs, job.uneven, 1 if short else 3),
        Figure("looks for what killed jobs have left", job.kills, job.left + left),
    ]


def shared_memory() -> set[str]:
    """What PyTorch, multiprocessing and we have put there. Other programs, such as other tests, use it, too.

    Not the semaphores of PyTorch's workers: Python removes them when this process ends.
    """
    ours = ("torch_", "psm_", "pym-", "anyrecord", ".anyrecord")
    return {name for name in os.listdir(SHARED) if name.startswith(ours)} if SHARED.exists() else set()


@dataclass
class Killed:
    """The job, over all its lives."""

    wanted_kills: int
    kills: int = 0
    steps: int = 0
    epochs: int = 0
    wrong: list[str] = field(default_factory=list)
    uneven: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def run(self, folder: Path) -> None:
        paths = []
        for half, suffix in enumerate((".ffr", ".array_record")):
            paths.append(str(folder / f"part{half}{suffix}"))
            with anyrecord.create(paths[-1]) as out:
                out.write_many(b"%08d%s" % (i, b"." * (i % 900)) for i in range(half, RECORDS, 2))
        # Processes are forked from one that has loaded PyTorch, which takes longer than a life.
        os.environ.update([MARK])
        context: Any = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch.distributed", "anyrecord.torch", "checks.loader_kills"])
        chance = random.Random(11)
        while self.kills < self.wanted_kills and not self.wrong:
            self._live(context, folder, paths, Life.any(chance), chance)
        if not self.wrong:
            self._live(context, folder, paths, Life(2, 40, "Loader", 2, 0), None)
        self._look()
        self._count(json.loads((folder / "checkpoint.json").read_text())["epochs"])

    def _live(self, context: Any, folder: Path, paths: list[str], life: Life, chance: random.Random | None) -> None:
        """Runs the job until it is killed. Without `chance`, until it has come to the end of its epoch."""
        heard, tell = context.Pipe(duplex=False)
        meeting = folder / f"meeting{self.kills}"
        ranks = []
        for rank in range(life.ranks):
            job = (str(folder), paths, str(meeting), rank, asdict(life), chance is None)
            ranks.append(context.Process(target=train, args=(*job, tell if rank == 0 else None)))
            ranks[-1].start()
        tell.close()
        steps = chance.randint(0, MOST_STEPS) if chance else 1 << 40
        try:
            for _ in range(steps):
                if not heard.poll(LIMIT_SECONDS):
                    self.wrong.append(f"{life} hung for {LIMIT_SECONDS:.0f} seconds")
                    break
                heard.recv()
                self.steps += 1
        except EOFError:  # it has come to its end
            if chance:
                self.wrong.append(f"{life} ended by itself")
        else:
            time.sleep(chance.random() * 0.05 if chance else 0)  # any moment of a step
            self.kills += 1
            for rank in chance.sample(ranks, len(ranks)) if chance else ranks:
                os.kill(rank.pid, signal.SIGKILL)
        for rank in ranks:
            rank.join()
            if rank.exitcode not in (0, -signal.SIGKILL):
                self.wrong.append(f"a rank of {life} ended with {rank.exitcode}")
        heard.close()

    def _look(self) -> None:
        """Decoding processes hear that their rank is gone, and end."""
        server = multiprocessing.forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
        until = time.monotonic() + LIMIT_SECONDS
        while (left := marked_processes() - {server}) and time.monotonic() < until:
            time.sleep(0.05)
        self.left += [f"process {pid} of a killed job still runs" for pid in sorted(left)]

    def _count(self, epochs: dict[str, list[int]]) -> None:
        for epoch, numbers in epochs.items():
            self.epochs += 1
            counts = Counter(numbers)
            twice = [number for number, count in counts.items() if count > 1]
            missing = RECORDS - len(counts)
            if twice or missing:
                self.uneven.append(
                    f"epoch {epoch}: {missing} records missing, {len(twice)} more than once: {twice[:9]}"
                )


def marked_processes() -> set[int]:
    """All processes that descend from this one, except the one that keeps account of semaphores."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_marked = "=".join(MARK).encode() in (folder / "environ").read_bytes()
            if is_marked and b"resource_tracker" not in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
        except OSError:  # it has ended, or is not ours
            continue
    return found


def train(
    folder: str,
    paths: list[str],
    meeting: str,
    rank: int,
    how: dict[str, Any],
    to_the_end: bool,
    tell: Connection | None,
) -> None:
    """One rank of the job. Writes a checkpoint after each step: the loader's state, and the records of each epoch."""
    import torch
    import torch.distributed as dist

    life = Life(**how)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=life.ranks)
    checkpoint = Path(folder) / "checkpoint.json"
    saved = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"epochs": {}}
    loader = loader_of(life, anyrecord.open(paths))
    if "loader" in saved:
        loader.load_state_dict(saved["loader"])
    epochs: dict[str, list[int]] = saved["epochs"]
    while True:
        batches = iter(loader)
        while True:
            batch = next(batches, None)
            # A step: all ranks wait for each other. Ranks that have no records left take part until all are done.
            everyone: list[Any] = [None] * life.ranks
            dist.all_gather_object(everyone, (batch, loader.state_dict()))
            states = [state for _, state in everyone]
            if states.count(states[0]) != life.ranks:
                raise SystemExit(f"ranks have other states: {states}")
            if rank == 0:
                numbers = [number for part, _ in everyone for number in part or ()]
                epochs.setdefault(str(states[0]["epoch"]), []).extend(numbers)
                new = checkpoint.with_suffix(".new")
                new.write_text(json.dumps({"loader": states[0], "epochs": epochs}))
                new.replace(checkpoint)
                if tell:
                    tell.send(len(numbers))
            if all(part is None for part, _ in everyone):
                break
        if to_the_end:
            dist.barrier()
            return


def loader_of(life: Life, records: anyrecord.Records) -> Any:
    from anyrecord.torch import ElasticLoader, ElasticSampler, Loader
    from torch.utils.data import DataLoader

    order: dict[str, Any] = {"shuffle": True, "seed": 5, "tail": "uneven"}
    if life.loader == "Loader":
        how: dict[str, Any] = {"processes": life.processes} if life.processes else {"threads": life.threads}
        return Loader(records, life.batch, decode=number_of, **how, **order)
    mapped: Iterable[int] = records.map(number_of)
    sampler = ElasticSampler(mapped, **order)  # type: ignore[arg-type]  # it has a length
    plain: Any = DataLoader(
        mapped,
        life.batch,
        sampler=sampler,
        num_workers=life.processes,
        collate_fn=list,
        # PyTorch's workers look for the parent that started them. That of a fork server outlives a killed job.
        multiprocessing_context="fork" if life.processes else None,
    )
    return ElasticLoader(plain)
