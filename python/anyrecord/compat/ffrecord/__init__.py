"""A drop-in for `ffrecord`: change the import line, and nothing else.

>>> from anyrecord.compat.ffrecord import FileReader, FileWriter
>>> with FileWriter("doc.ffr", 3) as writer:
...     for sample in (b"cat", b"dog", b"bird"):
...         writer.write_one(sample)
>>> reader = FileReader("doc.ffr", check_data=True)
>>> reader.n, [bytes(sample) for sample in reader.read([2, 0])]
(3, [b'bird', b'cat'])

Where the original crashes, leaks or loses data, this raises or does what was meant; `docs/compat-ffrecord.md` lists
each difference. `anyrecord.compat.ffrecord.torch` has what needs PyTorch, which is imported when that is first used.
New code is better off with `anyrecord` itself.
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

__getattr__, __dir__ = imported_when_used(__name__, "torch")  # which takes seconds to import, and need not be there

__version__ = "1.4.0"
"""The version of the original whose interface this is."""
