"""Trains with torchrun on shards that are handed out. Ranks are killed, others go on, and no record is lost.

    python examples/torchrun_shards.py                      # the whole story, in half a minute

The list of shards is in a TCPStore of this script, which outlives torchrun and its ranks. For a job of your own:

    python -m anyrecord.torch.shard_store torchrun --nproc-per-node 2 examples/torchrun_shards.py train FOLDER

The model is saved before a shard is completed, and all ranks wait for that. So no record can be missing from the model.
The records of shards that were interrupted come again. Needs PyTorch.
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
from anyrecord.torch import connect_store, host_store
from torch import Tensor

RECORDS = 600
SHARD_RECORDS = 20
LEASE_SECONDS = 3.0
"""After so long, others get the shards of a killed rank. A real job takes a minute."""


def decode(record: bytes) -> Tensor:
    """The number of the record, what the model gets, and what it should answer."""
    number = int(record)
    return torch.tensor([number, number / RECORDS, 1 - 2 * number / RECORDS])


def train(folder: Path, kill_at_steps: list[int]) -> None:
    """One rank. Each life of the job may end by a kill."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = torch.zeros(())
    seen, steps = torch.zeros(RECORDS), 0  # how often each record is in the model
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        seen, steps = saved["seen"], saved["steps"]

    records = anyrecord.open(folder / "numbers.ffr").map(decode)
    plan = anyrecord.ShardPlan(records, seed=1, epoch=0, shard_records=SHARD_RECORDS)
    queue = anyrecord.ShardQueue(plan, connect_store(), lease_seconds=LEASE_SECONDS)
    if rank == 0:
        print(f"  {world} ranks begin: {queue.status().done} of {len(plan)} shards are done", flush=True)

    # Ranks step together. One that has no records takes part without any, until all shards are done.
    for batch in anyrecord.elastic(records, queue, until="all_done", batch_size=6):
        rows = torch.stack(batch) if batch else torch.empty(0, 3)
        loss = ((model(rows[:, 1:2]) - rows[:, 2:]) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        counts = torch.bincount(rows[:, 0].long(), minlength=RECORDS).float()
        dist.all_reduce(counts)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= counts.sum().clamp(min=1)
        optimizer.step()
        seen += counts
        steps += 1
        if rank == world - 1 and kill_at_steps[life : life + 1] == [steps]:
            print(f"  rank {rank} is killed in step {steps}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 0:
            torch.save({"model": model.state_dict(), "seen": seen, "steps": steps}, f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)  # a kill leaves the old checkpoint or the new one
        dist.barrier()  # the next record completes a shard, so its step must be saved by now
    if rank == 0:
        print(f"  done after {steps} steps, the last loss is {loss.item():.4f}: {queue.status()}", flush=True)
    dist.barrier()  # ranks leave together: PyTorch may abort in one that leaves while others still work
    dist.destroy_process_group()


def torchrun(folder: Path, address: str, ranks: int, kill_at_steps: list[int]) -> bool:
    """Runs the job. Returns whether it came to its end."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--monitor-interval", "0.1"]
    how = ["--nproc-per-node", str(ranks), "--max-restarts", "1"]
    # The second variable: otherwise the restarted ranks look for a store of torchrun that the killed ones had.
    environment = {**os.environ, "ANYRECORD_STORE": address, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    command = [*launcher, *how, __file__, "train", str(folder), *map(str, kill_at_steps)]
    # A launcher whose rank was killed has a lot to say.
    return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False).returncode == 0


def tell_the_story() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    store = host_store()
    address = f"{store.host}:{store.port}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with anyrecord.create(folder / "numbers.ffr") as out:
            out.write_many(b"%d" % number for number in range(RECORDS))
        print("torchrun with 2 ranks, which it restarts once", flush=True)
        if torchrun(folder, address, 2, kill_at_steps=[10, 25]):
            raise SystemExit("the job should have been killed twice")
        print("torchrun with 3 ranks", flush=True)
        if not torchrun(folder, address, 3, kill_at_steps=[]):
            raise SystemExit("the job failed")
        seen = torch.load(folder / "checkpoint.pt", weights_only=True)["seen"]
    missing, again = int((seen == 0).sum()), int((seen > 1).sum())
    print(f"{RECORDS} records: {missing} missing, {again} came again")
    if missing:
        raise SystemExit("no record may be missing")


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
