"""Trains with torchrun. Ranks are killed, torchrun restarts them, and the job ends with another number of ranks.

    python examples/torchrun_sampler.py                                      # the whole story, in half a minute
    torchrun --nproc-per-node 2 examples/torchrun_sampler.py train FOLDER    # one job, from its checkpoint

`ElasticSampler` divides the records among the ranks. In each step all ranks together take the next 12 records of one
order, however many ranks there are. So the job continues exactly where its checkpoint is: each epoch has each record
exactly once, as if nothing had been killed. Needs PyTorch.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import anyrecord
import torch
import torch.distributed as dist
from anyrecord.torch import ElasticLoader, ElasticSampler
from torch import Tensor
from torch.utils.data import DataLoader

RECORDS = 600
STEP_RECORDS = 12
EPOCHS = 2


def decode(record: bytes) -> Tensor:
    """The number of the record, what the model gets, and what it should answer."""
    number = int(record)
    return torch.tensor([number, number / RECORDS, 1 - 2 * number / RECORDS])


def train(folder: Path, kill_at_steps: list[int]) -> None:
    """One rank. It saves after each step, and continues from what was saved. Each life of the job may end by a kill."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = torch.zeros(())

    records = anyrecord.open(folder / "numbers.ffr").map(decode)
    sampler = ElasticSampler(records, seed=1)
    loader = ElasticLoader(DataLoader(records, batch_size=STEP_RECORDS // world, sampler=sampler))
    seen: list[list[int]] = [[] for _ in range(EPOCHS)]
    steps = 0
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
        seen, steps = saved["seen"], saved["steps"]
    if rank == 0:
        print(f"  {world} ranks begin at step {steps}", flush=True)

    for epoch in range(sampler.epoch, EPOCHS):
        loader.set_epoch(epoch)
        for batch in loader:
            loss = ((model(batch[:, 1:2]) - batch[:, 2:]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
            optimizer.step()
            steps += 1
            numbers = [torch.empty(len(batch)) for _ in range(world)]
            dist.all_gather(numbers, batch[:, 0].contiguous())
            seen[epoch] += [int(number) for number in torch.cat(numbers)]
            if rank == world - 1 and kill_at_steps[life : life + 1] == [steps]:
                print(f"  rank {rank} is killed in step {steps}", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            if rank == 0:
                saved = {"model": model.state_dict(), "loader": loader.state_dict(), "seen": seen, "steps": steps}
                torch.save(saved, f"{checkpoint}.new")
                os.replace(f"{checkpoint}.new", checkpoint)  # a kill leaves the old checkpoint or the new one
    if rank == 0:
        print(f"  done after {steps} steps, the last loss is {loss.item():.4f}", flush=True)
    dist.barrier()  # ranks leave together: PyTorch may abort in one that leaves while others still work
    dist.destroy_process_group()


def torchrun(folder: Path, ranks: int, kill_at_steps: list[int]) -> bool:
    """Runs the job. Returns whether it came to its end."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--monitor-interval", "0.1"]
    how = ["--nproc-per-node", str(ranks), "--max-restarts", "1"]
    # Otherwise the restarted ranks look for a store that the killed ones had.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    command = [*launcher, *how, __file__, "train", str(folder), *map(str, kill_at_steps)]
    # A launcher whose rank was killed has a lot to say.
    return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False).returncode == 0


def tell_the_story() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with anyrecord.create(folder / "numbers.ffr") as out:
            out.write_many(b"%d" % number for number in range(RECORDS))
        print("torchrun with 2 ranks, which it restarts once", flush=True)
        if torchrun(folder, 2, kill_at_steps=[20, 70]):
            raise SystemExit("the job should have been killed twice")
        print("torchrun with 3 ranks", flush=True)
        if not torchrun(folder, 3, kill_at_steps=[]):
            raise SystemExit("the job failed")
        seen = torch.load(folder / "checkpoint.pt", weights_only=True)["seen"]
    for epoch, numbers in enumerate(seen):
        if sorted(numbers) != list(range(RECORDS)):
            raise SystemExit(f"epoch {epoch} does not have each record exactly once")
        print(f"epoch {epoch}: each of the {len(numbers)} records exactly once")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command")
    one = commands.add_parser("train", help="one rank; torchrun starts it")
    one.add_argument("folder", type=Path)
    one.add_argument("kill_at_steps", type=int, nargs="*", help="where each life of the job ends")
    arguments = parser.parse_args()
    if arguments.command == "train":
        train(arguments.folder, arguments.kill_at_steps)
    else:
        tell_the_story()


if __name__ == "__main__":
    main()
