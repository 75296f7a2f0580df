"""PyTorch Lightning trains on these data sets and loaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from anyrecord.compat.ffrecord import FileWriter
from anyrecord.compat.ffrecord.torch import DataLoader
from lightning.pytorch import LightningModule, Trainer

from compat.ffrecord.framework.ffrecord_training import Pairs

pytestmark = [
    pytest.mark.framework,
    pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


class Line(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.batch_sizes: list[int] = []

    def training_step(self, batch: Any, _index: int) -> Any:
        features, target = batch
        self.batch_sizes.append(len(target))
        return torch.nn.functional.mse_loss(self.layer(features).squeeze(1), target)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("workers", [0, 2])
def test_fit(tmp_path: Path, workers: int) -> None:
    with FileWriter(tmp_path / "train.ffr", 50) as writer:
        for number in range(50):
            writer.write_one(np.full(4, number / 50, np.float32))
    loader = DataLoader(Pairs(tmp_path / "train.ffr"), batch_size=8, shuffle=True, num_workers=workers)
    loader.set_step(2)
    model = Line()
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(model, loader)
    assert model.batch_sizes == [8, 8, 8, 8, 2]
    assert trainer.global_step == 5


def test_a_loader_can_be_made_again_as_lightning_does_for_many_processes(tmp_path: Path) -> None:
    from lightning.fabric.utilities.data import _update_dataloader

    with FileWriter(tmp_path / "train.ffr", 50) as writer:
        for number in range(50):
            writer.write_one(np.full(4, number / 50, np.float32))
    loader = DataLoader(Pairs(tmp_path / "train.ffr"), batch_size=8, shuffle=True, skippable=False)
    sampler = torch.utils.data.DistributedSampler(loader.dataset, num_replicas=2, rank=1)
    again = _update_dataloader(loader, sampler)
    assert type(again) is DataLoader
    assert again.sampler is sampler
    assert again.skippable is False
    assert sum(len(target) for _, target in again) == 25
