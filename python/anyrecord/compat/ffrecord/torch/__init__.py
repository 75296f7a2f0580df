"""A drop-in for `ffrecord.torch`: data sets that are asked for a batch at a time, and a loader that can skip steps.

Nothing in PyTorch is changed by the import. PyTorch's own `DataLoader`, `Subset` and `random_split` work on these data
sets, too, and read a batch at a time.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    text = "anyrecord.compat.ffrecord.torch needs PyTorch: pip install torch"
    raise ModuleNotFoundError(text, name="torch") from error

from anyrecord.compat.ffrecord.torch.dataloader import DataLoader
from anyrecord.compat.ffrecord.torch.dataset import ConcatDataset, Dataset, ReaderRegistry, Subset

__all__ = ["ConcatDataset", "DataLoader", "Dataset", "ReaderRegistry", "Subset"]
