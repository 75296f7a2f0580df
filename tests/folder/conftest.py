"""Packed folders to test with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import anyrecord
import pytest

from folder.listings import pack_listing

PackWith = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with a bit of everything."""
    root = tmp_path / "tree"
    for path, contents in {
        "b.txt": b"bee",
        "a/one.bin": bytes(range(256)),
        "a/deep/er/two.bin": b"2" * 70_000,
        "a.txt": b"",
        ".hidden": b"dot",
        "Z": b"zed",
        "日本/ファイル": "名".encode(),
    }.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(contents)
    (root / "empty").mkdir()
    return root


@pytest.fixture
def packed(tree: Path, tmp_path: Path) -> Path:
    """That folder, packed."""
    anyrecord.pack(tree, tmp_path / "tree.ffr")
    return tmp_path / "tree.ffr"


@pytest.fixture
def pack_with(tmp_path: Path) -> PackWith:
    """Makes a file of the given records whose last one is the magic and the given listing."""

    def make(listing: bytes, files: Sequence[bytes] = (b"x", b"y")) -> Path:
        return pack_listing(tmp_path / "made.ffr", listing, files)

    return make
