"""Types that the drop-ins share. They are built on the public names of `anyrecord` alone."""

import os
from typing import TypeAlias

__all__ = ["StrPath"]

StrPath: TypeAlias = str | os.PathLike[str]
"""How a caller may name a file."""
