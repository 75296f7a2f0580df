"""A data set to train on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from anyrecord.compat.ffrecord.torch import Dataset


class Pairs(Dataset):
    """Three features and a target."""

    def process(self, indices: Any, data: Any) -> list[Any]:
        rows = [torch.from_numpy(sample.view(np.float32)) for sample in data]
        return [(row[:3], row[3]) for row in rows]
