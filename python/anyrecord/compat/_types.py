"""Types that the drop-ins share. The drop-ins use only the public names of `anyrecord`."""

import os
from typing import TypeAlias

__all__ = ["StrPath"]

StrPath: TypeAlias = str | os.PathLike[str]
"""The name of a file."""
