"""A drop-in replacement for `ffrecord`: you only change the import line.

>>> from anyrecord.compat.ffrecord import FileReader, FileWriter
>>> with FileWriter("doc.ffr", 3) as writer:
...     for sample in (b"cat", b"dog", b"bird"):
...         writer.write_one(sample)
>>> reader = FileReader("doc.ffr", check_data=True)
>>> reader.n, [bytes(sample) for sample in reader.read([2, 0])]
(3, [b'bird', b'cat'])

If the original crashes, leaks or loses data, this package raises an error or does what was intended.
`docs/compat-ffrecord.md` lists each difference. `anyrecord.compat.ffrecord.torch` needs PyTorch, which is imported when
you first use that module. In new code, use `anyrecord` itself.
"""

from typing import TYPE_CHECKING

try:
    import numpy as _numpy  # noqa: F401
except ImportError as error:
    raise ModuleNotFoundError("anyrecord.compat.ffrecord needs numpy: pip install numpy", name="numpy") from error

from anyrecord.compat._submodules import imported_when_used
from anyrecord.compat.ffrecord import utils as utils
from anyrecord.compat.ffrecord.fileio import FileReader, FileWriter, checkFsAlign
from anyrecord.compat.ffrecord.package import PackedFolder, pack_folder

if TYPE_CHECKING:
    from anyrecord.compat.ffrecord import torch as torch

__all__ = ["FileReader", "FileWriter", "PackedFolder", "checkFsAlign", "pack_folder"]

__getattr__, __dir__ = imported_when_used(__name__, "torch")  # PyTorch is optional, and takes seconds to import

__version__ = "1.4.0"
"""The version of the original that has this interface."""
