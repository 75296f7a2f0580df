"""A drop-in for `ffrecord`: change the import line, and nothing else.

>>> from anyrecord.compat.ffrecord import FileReader, FileWriter
>>> with FileWriter("doc.ffr", 3) as writer:
...     for sample in (b"cat", b"dog", b"bird"):
...         writer.write_one(sample)
>>> reader = FileReader("doc.ffr", check_data=True)
>>> reader.n, [bytes(sample) for sample in reader.read([2, 0])]
(3, [b'bird', b'cat'])

Where the original crashes, leaks or loses data, this raises or does what was meant; `docs/compat-ffrecord.md` lists
each difference. `anyrecord.compat.ffrecord.torch` has what needs PyTorch. New code is better off with `anyrecord`
itself.
"""

from anyrecord.compat.ffrecord import utils
from anyrecord.compat.ffrecord.packed import PackedFolder, pack_folder
from anyrecord.compat.ffrecord.reader import FileReader, checkFsAlign
from anyrecord.compat.ffrecord.writer import FileWriter

__all__ = ["FileReader", "FileWriter", "PackedFolder", "checkFsAlign", "pack_folder", "utils"]

__version__ = "1.4.0"
"""The version of the original whose interface this is."""
