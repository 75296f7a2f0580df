"""Trains a small network on pictures with PyTorch. The job is killed in mid-epoch and goes on with other ranks.

    python examples/train_pictures.py                                     # the whole story, in about a minute
    python examples/train_pictures.py train FOLDER                        # one job, from its checkpoint if it has one
    torchrun --nproc-per-node 2 examples/train_pictures.py train FOLDER   # the same job on two ranks

In each step all ranks together take the same 64 pictures, however many ranks there are. So the losses are the same as
without the kill: exactly with the same number of ranks, and else up to the rounding of sums. Needs PyTorch and OpenCV.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import anyrecord
import cv2
import numpy
import torch
from anyrecord.torch import Loader
from torch import Tensor, nn

PICTURES = 1600
SIDE = 32
SHAPES = ("circle", "square", "triangle", "cross")
STEP_PICTURES = 64
EPOCHS = 2
STEPS_PER_CHECKPOINT = 4


def draw(shape: str, chance: random.Random) -> numpy.ndarray:
    """A picture of a shape, anywhere in it, on a noisy ground."""
    noise = numpy.frombuffer(chance.randbytes(SIDE * SIDE), numpy.uint8) // 2
    picture = noise.reshape(SIDE, SIDE).copy()
    x, y, size = chance.randrange(10, SIDE - 10), chance.randrange(10, SIDE - 10), chance.randrange(5, 9)
    if shape == "circle":
        cv2.circle(picture, (x, y), size, 255, 2)
    elif shape == "square":
        cv2.rectangle(picture, (x - size, y - size), (x + size, y + size), 255, 2)
    elif shape == "triangle":
        corners = numpy.array([[x, y - size], [x - size, y + size], [x + size, y + size]])
        cv2.polylines(picture, [corners], True, 255, 2)
    else:
        cv2.line(picture, (x - size, y - size), (x + size, y + size), 255, 2)
        cv2.line(picture, (x - size, y + size), (x + size, y - size), 255, 2)
    return picture


def write_pictures(folder: Path) -> None:
    """Writes the data set: each record is the number of the shape, and the picture as JPEG."""
    chance = random.Random(7)
    with anyrecord.create(folder / "pictures.ffr") as out:
        for number in range(PICTURES):
            label = number % len(SHAPES)
            _, jpeg = cv2.imencode(".jpg", draw(SHAPES[label], chance))
            out.write(bytes([label]) + jpeg.tobytes())


def decode(record: bytes) -> tuple[Tensor, int]:
    """The picture as a tensor, and its label."""
    picture = cv2.imdecode(numpy.frombuffer(record, numpy.uint8)[1:], cv2.IMREAD_GRAYSCALE)
    return torch.from_numpy(picture)[None].float() / 255 - 0.5, record[0]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 8 * 8, len(SHAPES)),
    )


class Job:
    """What a checkpoint holds: the network, its optimizer, where the data is, and the losses so far."""

    def __init__(self, folder: Path, loader: Loader[list[Tensor]]) -> None:
        torch.manual_seed(0)
        self.path = folder / "checkpoint.pt"
        self.loader = loader
        self.network = network()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.003)
        self.losses: list[float] = []

    def load(self) -> None:
        if self.path.exists():
            saved = torch.load(self.path, weights_only=True)
            self.network.load_state_dict(saved["network"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.loader.load_state_dict(saved["loader"])
            self.losses = saved["losses"]

    def save(self) -> None:
        saved = {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),
            "losses": self.losses,
        }
        torch.save(saved, f"{self.path}.new")
        os.replace(f"{self.path}.new", self.path)  # a kill leaves the old checkpoint or the new one


def train(folder: Path, threads: int | None, processes: int, kill_at_step: int | None) -> None:
    """Trains until all epochs are done."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank() if ranks > 1 else 0

    loader = Loader(
        folder / "pictures.ffr",
        STEP_PICTURES // ranks,
        decode=decode,
        collate="tensors",
        shuffle=True,
        seed=1,
        threads=threads,
        processes=processes,
    )
    job = Job(folder, loader)
    job.load()
    model = nn.parallel.DistributedDataParallel(job.network) if ranks > 1 else job.network
    for epoch in range(loader.sampler.epoch, EPOCHS):
        loader.set_epoch(epoch)
        for pictures, labels in loader:
            loss = nn.functional.cross_entropy(model(pictures), labels)
            job.optimizer.zero_grad()
            loss.backward()
            job.optimizer.step()
            mean = loss.detach()
            if ranks > 1:
                torch.distributed.all_reduce(mean)
            job.losses.append(float(mean) / ranks)
            if len(job.losses) == kill_at_step:
                os.kill(os.getpid(), signal.SIGKILL)
            if rank == 0 and len(job.losses) % STEPS_PER_CHECKPOINT == 0:
                job.save()
    if rank == 0:
        job.save()
    if ranks > 1:
        torch.distributed.destroy_process_group()


def start(folder: Path, ranks: int, *arguments: str) -> bool:
    """Runs a job in processes of its own. Returns whether it came to its end."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [sys.executable, *launcher, __file__, "train", str(folder), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # A launcher whose rank was killed has a lot to say.
    return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False).returncode == 0


def losses_of(folder: Path) -> list[float]:
    losses: list[float] = torch.load(folder / "checkpoint.pt", weights_only=True)["losses"]
    return losses


def tell_the_story() -> None:
    """Runs the job without a kill, and with kills and other numbers of threads, processes and ranks."""
    # Name, most that a loss may differ, and the jobs: ranks, and arguments. All but the last one are killed.
    stories: list[tuple[str, float, list[tuple[int, list[str]]]]] = [
        ("1 rank, never killed", 0.0, [(1, [])]),
        (
            "1 rank, killed at step 18, then 1 decoding process instead of threads",
            0.0,
            [(1, ["--threads", "2", "--kill-at-step", "18"]), (1, ["--processes", "1"])],
        ),
        (
            "2 ranks, killed at step 11; 4 ranks, killed at step 31; 1 rank",
            1e-4,
            [(2, ["--kill-at-step", "11"]), (4, ["--kill-at-step", "31", "--threads", "1"]), (1, [])],
        ),
    ]
    expected: list[float] = []
    for name, tolerance, jobs in stories:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write_pictures(folder)
            ends = [start(folder, ranks, *arguments) for ranks, arguments in jobs]
            if ends != [False] * (len(jobs) - 1) + [True]:
                raise SystemExit(f"{name}: a job did not end as it should: {ends}")
            losses = losses_of(folder)
        expected = expected or losses
        steps = EPOCHS * PICTURES // STEP_PICTURES
        differs = max(abs(a - b) for a, b in zip(expected, losses, strict=True))
        print(f"{name}\n    {len(losses)} steps, losses {losses[0]:.4f} ... {losses[-1]:.4f}, differ by {differs:.1g}")
        if len(losses) != steps or differs > tolerance or losses[-1] > losses[0] / 2:
            raise SystemExit(f"expected {steps} steps, the same losses up to {tolerance}, and half the loss at the end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers()
    one = commands.add_parser("train", help="train one job, from its checkpoint if there is one")
    one.add_argument("folder", type=Path)
    one.add_argument("--threads", type=int, help="threads that decode")
    one.add_argument("--processes", type=int, default=0, help="processes that decode, instead of threads")
    one.add_argument("--kill-at-step", type=int, help="the job kills itself after so many steps")
    arguments = vars(parser.parse_args())
    if not arguments:
        tell_the_story()
        return
    if not (arguments["folder"] / "pictures.ffr").exists():
        write_pictures(arguments["folder"])
    train(**arguments)


if __name__ == "__main__":
    main()
