"""Blocks that do not run are few, and each says why."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from pages.blocks import RUN, blocks

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# How often each page may have a block that does not run, by the reason that the block gives.
NOT_RUN = {
    ("README.md", "a test runs this section in an empty environment"): 6,
    ("docs/compat-array_record-beam.md", "needs a project of Google Cloud"): 2,
    ("docs/pytorch.md", "needs a GPU"): 1,
}

# Languages of blocks that are not code to run: drawings, and text that programs print.
SHOWN = {"text", "json", "yaml", "toml", "ini", "rust", "c", "http", "hexdump", "diff"}


def test_blocks_that_do_not_run_are_on_the_list() -> None:
    found: Counter[tuple[str, str]] = Counter()
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.reason is not None:
                found[page.relative_to(ROOT).as_posix(), block.reason] += 1
    assert {key: count for key, count in found.items() if count > NOT_RUN.get(key, 0)} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_block_has_a_language_that_is_run_or_shown(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {block.language for block in blocks(text)} <= {*RUN, *SHOWN, "hidden"}
    assert not re.search(r"doctest: *\+SKIP", text), "mark the block with <!-- not run: REASON -->"
