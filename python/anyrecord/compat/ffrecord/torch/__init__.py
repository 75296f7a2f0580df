"""A drop-in replacement for `ffrecord.torch`: data sets that read batches, and a loader that can skip steps.

The import changes nothing in PyTorch. PyTorch's own `DataLoader`, `Subset` and `random_split` also work with these data
sets and read one batch at a time.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    text = "anyrecord.compat.ffrecord.torch needs PyTorch: pip install torch"
    raise ModuleNotFoundError(text, name="torch") from error

from anyrecord.compat.ffrecord.torch.dataloader import DataLoader
from anyrecord.compat.ffrecord.torch.dataset import ConcatDataset, Dataset, ReaderRegistry, Subset

__all__ = ["ConcatDataset", "DataLoader", "Dataset", "ReaderRegistry", "Subset"]
