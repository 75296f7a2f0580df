"""The tables of docs/codecs.md are those of the saved results."""

from __future__ import annotations

from pathlib import Path

from benches.choices import TABLES, filled
from benches.results import load

ROOT = Path(__file__).parent.parent.parent


def test_the_page_has_the_figures_of_the_saved_results() -> None:
    page = (ROOT / "docs" / "codecs.md").read_text(encoding="utf-8")
    results = load(ROOT / "benches" / "results" / "epyc-2.json")
    assert filled(page, results) == page, "run python -m benches.plot benches/results/epyc-2.json"
    assert all(f"<!-- figures: {name} -->" in page for name in TABLES)
