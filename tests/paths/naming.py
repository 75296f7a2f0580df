"""Files to name, and what naming them comes to."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest
from anyrecord._paths import expand

not_on_windows = pytest.mark.skipif(sys.platform == "win32", reason="the file system refuses such names")


def touch(*names: str) -> list[str]:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    return list(names)


def before(prefix: str, count: int, suffix: str = ".array_record") -> list[str]:
    """Names numbered before the suffix."""
    return [f"{prefix}-{index:05}-of-{count:05}{suffix}" for index in range(count)]


def after(name: str, count: int) -> list[str]:
    """Names numbered after the suffix."""
    return before(name, count, suffix="")


def names(source: object) -> list[str]:
    files = expand(source)  # type: ignore[arg-type]
    assert all(file.start == 0 and file.stop is None for file in files)
    return [file.path.replace(os.sep, "/") for file in files]


def not_found(source: object) -> str:
    with pytest.raises(FileNotFoundError) as caught:
        expand(source)  # type: ignore[arg-type]
    assert caught.value.errno == errno.ENOENT
    return str(caught.value)


def refused(source: object) -> str:
    with pytest.raises(ValueError) as caught:
        expand(source)  # type: ignore[arg-type]
    return str(caught.value)
